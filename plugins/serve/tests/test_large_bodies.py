"""Bodies with a great many mistakes: the first is told, and work ends there."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request

from mlxfill_serve import reading
from mlxfill_serve.bodies import ChatBody
from mlxfill_serve.errors import ApiError
from mlxfill_serve.reading import read_body

if TYPE_CHECKING:
    from pydantic import ValidationError

ASK = {"role": "user", "content": "Hi."}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"messages": [ASK], **{f"k{n}": n for n in range(50_000)}}, "unknown field 'k0'"),
        ({"messages": [{"role": "nobody"}] * 50_000}, "messages.0.role"),
    ],
)
def test_one_mistake_is_told(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], told: str
) -> None:
    counts: list[int] = []
    refusal = reading.refusal

    def counted(error: ValidationError, kind: type[ChatBody]) -> ApiError:
        counts.append(error.error_count())
        return refusal(error, kind)

    monkeypatch.setattr(reading, "refusal", counted)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    request = Request({"type": "http", "headers": []}, receive)
    with pytest.raises(ApiError, match=told):
        asyncio.run(read_body(request, ChatBody, 8_000_000, 5, strict=True))
    assert counts == [1]
