"""What the paths of the API answer."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from attrs import frozen
from starlette.responses import JSONResponse, Response

from mlxfill_serve.answers import ClientGoneError, CompletionAnswer, Wire, error_event, streamed
from mlxfill_serve.anthropic.answers import MessageAnswer, MessageChoice
from mlxfill_serve.anthropic.asking import chat_body as messages_chat_body
from mlxfill_serve.anthropic.asking import in_words_of_messages
from mlxfill_serve.anthropic.bodies import CountBody, MessagesBody
from mlxfill_serve.anthropic.errors import error_event as message_error
from mlxfill_serve.asking import audit_wanted, chat_question, check_replies, completion_questions
from mlxfill_serve.bodies import ChatBody, CompletionBody
from mlxfill_serve.choices import ChatChoice, TextChoice
from mlxfill_serve.dialects.hearing import HEADER
from mlxfill_serve.errors import dead_engine
from mlxfill_serve.generation import Generation
from mlxfill_serve.ollama.answers import LineAnswer, LineChoice, error_body, line
from mlxfill_serve.ollama.asking import chat_body as ollama_chat_body
from mlxfill_serve.ollama.bodies import Asking, ChatAsking, GenerateAsking, ShowAsking
from mlxfill_serve.ollama.models import shown, tags
from mlxfill_serve.reading import B, as_refusals, read_body, read_loosely
from mlxfill_serve.reply import ReplyReader
from mlxfill_serve.requestlog import CLIENT_GONE
from mlxfill_serve.responses.answers import ResponseAnswer, no_response
from mlxfill_serve.responses.asking import chat_body, in_words_of_responses
from mlxfill_serve.responses.bodies import ResponsesBody
from mlxfill_serve.responses.choice import ResponseChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from starlette.requests import Request

    from mlxfill import Engine
    from mlxfill_serve.answers import Answer
    from mlxfill_serve.asking import Question
    from mlxfill_serve.bodies import Asked, Options
    from mlxfill_serve.metrics import Metrics
    from mlxfill_serve.models import Models
    from mlxfill_serve.responses.store import ResponseStore
    from mlxfill_serve.settings import ServeSettings
    from mlxfill_serve.worker import EngineThread


LINES = Wire(lambda error: line(error_body(error)), b"", "application/x-ndjson")
WIRES: dict[type, Wire] = {
    ResponsesBody: Wire(no_response),
    MessagesBody: Wire(message_error),
    ChatAsking: LINES,
    GenerateAsking: LINES,
}
"""Streams that are not written as those of chat completions."""


@frozen
class Chat:
    """A chat request that is being answered, with a reader for each choice."""

    model: str
    generation: Generation
    readers: Sequence[ReplyReader]
    prompt_tokens: int


@frozen
class Endpoints:
    """The API on one engine."""

    worker: EngineThread
    models: Models
    settings: ServeSettings
    metrics: Metrics
    store: ResponseStore

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 - mlx-lm's wrapper, untyped
        """The model's; here it only decodes."""
        return self.engine.tokenizer

    @property
    def engine(self) -> Engine:
        """The engine, whose thread has loaded it."""
        engine = self.worker.engine
        if engine is None:
            raise dead_engine()
        return engine

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        body = await self._body(request, ChatBody)
        return await self._answered(self._chat_answer(body), body, request)

    async def _chat_answer(self, body: ChatBody) -> Answer:
        chat = await self._chat(body)
        choices = [
            ChatChoice(
                index,
                reader,
                self.tokenizer,
                with_logprobs=bool(body.logprobs),
                with_origins=_origins(body),
                with_reasoning=body.include_reasoning is not False,
            )
            for index, reader in enumerate(chat.readers)
        ]
        return CompletionAnswer(
            generation=chat.generation,
            choices=choices,
            model=chat.model,
            metrics=self.metrics,
            replies=body.n or 1,
            kind="chat.completion",
            chunk_kind="chat.completion.chunk",
            prefix="chatcmpl",
            with_usage=_usage_wanted(body),
        )

    async def respond(self, request: Request) -> Response:
        """``POST /v1/responses``."""
        body = await self._body(request, ResponsesBody)
        return await self._answered(self._response_answer(body), body, request)

    async def _response_answer(self, body: ResponsesBody) -> Answer:
        items = self.store.said(body)
        with in_words_of_responses():
            asked = chat_body(body, items)
            chat = await self._chat(asked)
            (reader,) = chat.readers
            choice = ResponseChoice(reader, self.tokenizer, with_logprobs=bool(asked.logprobs))
            return ResponseAnswer(
                generation=chat.generation,
                choices=[choice],
                model=chat.model,
                metrics=self.metrics,
                body=body,
                keep=None if body.store is False else partial(self.store.keep, items),
            )

    async def message(self, request: Request) -> Response:
        """``POST /v1/messages``."""
        body = await read_loosely(request, MessagesBody, self.settings)
        self.worker.faults.ignored(request.state.heard.ignored)
        return await self._answered(self._message_answer(body), body, request)

    async def _message_answer(self, body: MessagesBody) -> Answer:
        with in_words_of_messages():
            with as_refusals(ChatBody):
                asked = messages_chat_body(body)
            chat = await self._chat(asked)
            (reader,) = chat.readers
            return MessageAnswer(
                generation=chat.generation,
                choices=[MessageChoice(reader, self.tokenizer, body.stop_sequences or ())],
                model=chat.model,
                metrics=self.metrics,
                prompt_tokens=chat.prompt_tokens,
                with_origins=_origins(body),
            )

    async def count_tokens(self, request: Request) -> Response:
        """``POST /v1/messages/count_tokens``."""
        body = await read_loosely(request, CountBody, self.settings)
        with in_words_of_messages():
            with as_refusals(ChatBody):
                asked = messages_chat_body(body)
            _, adapters = self.models.chosen(asked.model, None)

            def read() -> list[Question]:
                question = chat_question(asked, self.settings, self.tokenizer)
                return [question.under(adapters).read(self.engine)]

            (question,) = await self.worker.readers.read(read)
        return JSONResponse({"input_tokens": len(question.prompt.ids)})

    async def ollama_chat(self, request: Request) -> Response:
        """``POST /api/chat``."""
        body = await read_loosely(request, ChatAsking, self.settings)
        return await self._answered(self._line_answer(body), body, request)

    async def ollama_generate(self, request: Request) -> Response:
        """``POST /api/generate``."""
        body = await read_loosely(request, GenerateAsking, self.settings)
        return await self._answered(self._line_answer(body), body, request)

    async def _line_answer(self, body: Asking) -> Answer:
        with as_refusals(ChatBody):
            asked = ollama_chat_body(body)
        chat = await self._chat(asked)
        (reader,) = chat.readers
        return LineAnswer(
            generation=chat.generation,
            choices=[LineChoice(reader, self.tokenizer)],
            model=chat.model,
            metrics=self.metrics,
            chat=isinstance(body, ChatAsking),
        )

    async def ollama_tags(self, _: Request) -> Response:
        """``GET /api/tags``."""
        return JSONResponse({"models": tags(self.models)})

    async def ollama_show(self, request: Request) -> Response:
        """``POST /api/show``."""
        body = await read_loosely(request, ShowAsking, self.settings)
        asked = (body.model or body.name or "").removesuffix(":latest")
        self.models.chosen(asked or None, None)
        return JSONResponse(shown(self.engine))

    async def ollama_version(self, _: Request) -> Response:
        """``GET /api/version``."""
        return JSONResponse({"version": version("mlxfill-serve")})

    async def complete(self, request: Request) -> Response:
        """``POST /v1/completions``."""
        body = await self._body(request, CompletionBody)
        return await self._answered(self._text_answer(body), body, request)

    async def _text_answer(self, body: CompletionBody) -> Answer:
        name, adapters = self.models.chosen(body.model, body.adapters)
        asked = completion_questions(body, self.settings)

        def read() -> list[Question]:
            return [question.under(adapters).read(self.engine) for question in asked]

        generation, questions = await self._begin(read, body, len(asked))
        opened = await generation.opened()
        choices = [
            TextChoice(
                index,
                self.tokenizer,
                self._echoed(each.prompt_text, questions[index // (body.n or 1)], body),
                with_logprobs=body.logprobs is not None and body.logprobs is not False,
                with_origins=_origins(body),
            )
            for index, each in enumerate(opened)
        ]
        return CompletionAnswer(
            generation=generation,
            choices=choices,
            model=name,
            metrics=self.metrics,
            replies=body.n or 1,
            kind="text_completion",
            chunk_kind="text_completion",
            prefix="cmpl",
            with_usage=_usage_wanted(body),
        )

    async def list_models(self, _: Request) -> Response:
        """``GET /v1/models``."""
        return JSONResponse(self.models.listed())

    async def one_model(self, request: Request) -> Response:
        """``GET /v1/models/NAME``."""
        return JSONResponse(self.models.one(request.path_params["name"]))

    async def health(self, _: Request) -> Response:
        """``GET /health``: 503 when the engine is dead or hung."""
        worker = self.worker
        well = worker.alive and not worker.hung
        told = {
            "status": "ok" if well else "unavailable",
            "engine": "dead" if not worker.alive else "hung" if worker.hung else "alive",
            "model": self.models.name,
            "rows": worker.rows,
            "outstanding": worker.outstanding,
        }
        return JSONResponse(told, 200 if well else 503)

    async def _body(self, request: Request, kind: type[B]) -> B:
        settings = self.settings
        body = await read_body(
            request, kind, settings.max_body, settings.timeout, strict=settings.strict
        )
        self.worker.faults.ignored(request.state.heard.ignored)
        return body

    async def _chat(self, body: ChatBody) -> Chat:
        """Have a chat request answered."""
        name, adapters = self.models.chosen(body.model, body.adapters)

        def read() -> list[Question]:
            question = chat_question(body, self.settings, self.tokenizer)
            return [question.under(adapters).read(self.engine)]

        generation, (question,) = await self._begin(read, body, 1)
        opened = await generation.opened()
        most = 1 if body.parallel_tool_calls is False else None
        readers = [
            ReplyReader(self.tokenizer, question.tools, each.prompt_text, most=most)
            for each in opened
        ]
        return Chat(name, generation, readers, sum(each.prompt_tokens for each in opened[:1]))

    async def _begin(
        self, read: Callable[[], list[Question]], body: Asked, prompts: int
    ) -> tuple[Generation, list[Question]]:
        """Read the questions, and have them answered."""
        replies = body.n or 1
        check_replies(body, self.settings, prompts)
        with self.worker.room(prompts * replies):
            questions = await self.worker.readers.read(read)
            openers = [
                partial(question.open, index=index)
                for question in questions
                for index in range(replies)
            ]
            return Generation(self.worker, openers), questions

    async def _answered(
        self,
        making: Coroutine[Any, Any, Answer],
        body: Options | MessagesBody | Asking,
        request: Request,
    ) -> Response:
        """What is wrong with a request is told by its status where that is known soon."""

        async def kept() -> Answer:
            request.state.answer = answer = await making
            return answer

        try:
            if body.stream or (body.stream is None and isinstance(body, Asking)):
                wire = WIRES.get(type(body), Wire(error_event))
                made = asyncio.ensure_future(kept())
                response = await streamed(made, self.worker.patience, wire)
            else:
                response = await (await kept()).whole(request)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        if request.state.heard.ignored:
            response.headers[HEADER] = ", ".join(request.state.heard.ignored)
        return response

    def _echoed(self, prompt_text: str, question: Question, body: CompletionBody) -> str:
        if not body.echo:
            return ""
        return prompt_text or str(self.tokenizer.decode(list(question.prompt.ids)))


def _origins(body: Asked | MessagesBody) -> bool:
    return body.mlxfill is not None and body.mlxfill.origins


def _usage_wanted(body: Asked) -> bool:
    asked = body.stream_options is not None and bool(body.stream_options.include_usage)
    return asked or _origins(body) or audit_wanted(body)
