"""What the chat template does not know, a role or an option, is not lost without a word."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper

from mlxfill import Engine, Fault, InputError, TemplateError
from mlxfill_testing import engine_with, shared_model, tiny_tokenizer

WRITES_ANY = "{% for m in messages %}<user>{{ m.role }}: {{ m.content }}<end>{% endfor %}<reply>"
KNOWS_FOUR = (
    "{% for m in messages %}"
    "{% if m.role in ('system', 'user', 'assistant', 'critic') %}<user>{{ m.content }}<end>"
    "{% endif %}{% endfor %}<reply>"
)
NAMES_ONE = (
    "{% for m in messages %}"
    "{% if m.role == 'system' %}<user>{% else %}<reply>{{ m.role }}{% endif %}{{ m.content }}"
    "{% endfor %}<reply>"
)
SPELLS_OUT = (
    "{% for m in messages if m.role != 'tool' %}{{ m.role }}{{ m.content | upper }}{% endfor %}"
)


def engine_writing(template: str | dict[str, str]) -> Engine:
    """An engine whose tokenizer has this chat template, or these by name."""
    raw: Any = copy.deepcopy(tiny_tokenizer()._tokenizer)
    raw.chat_template = template
    return engine_with(shared_model("llama"), tokenizer=TokenizerWrapper(raw))


def asked(template: str, *roles: str) -> str:
    """What refuses messages of these roles; "" when nothing does."""
    messages = [{"role": role, "content": f"said by {at}"} for at, role in enumerate(roles)]
    with engine_writing(template) as engine:
        try:
            engine.generate(messages, max_tokens=1)
        except InputError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("template", [WRITES_ANY, KNOWS_FOUR, NAMES_ONE])
@pytest.mark.parametrize(
    ("role", "meant"), [("usr", "user"), ("User", "user"), ("sytem", "system")]
)
def test_a_misspelt_role_is_one_line_with_the_one_that_was_meant(
    template: str, role: str, meant: str
) -> None:
    assert asked(template, "user", role) == (
        f"message 1 has the role {role!r}, which the chat template does not know; "
        f"did you mean {meant!r}?"
    )


@pytest.mark.parametrize("role", ["wizard", "function"])
def test_a_message_that_the_template_would_leave_out_is_refused(role: str) -> None:
    assert asked(KNOWS_FOUR, role, "user") == (
        f"message 0 has the role {role!r}, which the chat template does not know; "
        "it knows system, user, assistant"
    )


@pytest.mark.parametrize(
    ("template", "role"),
    [
        (KNOWS_FOUR, "system"),
        (WRITES_ANY, "system"),
        (KNOWS_FOUR.replace("critic", "developer"), "developer"),
        (f"{WRITES_ANY}{{# 'developer' #}}", "developer"),
    ],
)
def test_a_developer_is_the_system_where_the_template_does_not_name_it(
    template: str, role: str
) -> None:
    said = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hello"}]
    with engine_writing(template) as engine:
        request = engine.stream(said, max_tokens=1).request
    assert request.messages is not None
    assert [message["role"] for message in request.messages] == [role, "user"]
    assert "be brief" in request.prompt_text
    assert said[0]["role"] == "developer"


DEVELOPS = KNOWS_FOUR.replace("critic", "developer")
TOOLS = [{"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    ("templates", "options", "roles"),
    [
        ({"default": KNOWS_FOUR, "tool_use": DEVELOPS}, {}, ["system", "user"]),
        ({"default": KNOWS_FOUR, "tool_use": DEVELOPS}, {"tools": TOOLS}, ["developer", "user"]),
        ({"default": DEVELOPS, "tool_use": KNOWS_FOUR}, {}, ["developer", "user"]),
        ({"default": DEVELOPS, "tool_use": KNOWS_FOUR}, {"tools": TOOLS}, ["system", "user"]),
        ({"default": DEVELOPS}, {"tools": TOOLS}, ["developer", "user"]),
        (
            {"default": KNOWS_FOUR, "own": DEVELOPS},
            {"template_options": {"chat_template": "own"}},
            ["developer", "user"],
        ),
        (DEVELOPS, {"template_options": {"chat_template": KNOWS_FOUR}}, ["system", "user"]),
    ],
)
def test_of_several_templates_the_one_that_is_used_decides(
    templates: str | dict[str, str], options: dict[str, Any], roles: list[str]
) -> None:
    said = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hello"}]
    with engine_writing(templates) as engine:
        request = engine.stream(said, max_tokens=1, **options).request
        assert request.messages is not None
        assert [message["role"] for message in request.messages] == roles
        assert "be brief" in request.prompt_text


def test_a_role_that_only_the_other_template_names_is_refused() -> None:
    templates = {"default": KNOWS_FOUR.replace("'critic'", "'user'"), "tool_use": KNOWS_FOUR}
    said = [{"role": "critic", "content": "bad"}, {"role": "user", "content": "hello"}]
    with engine_writing(templates) as engine:
        assert engine.generate(said, tools=TOOLS, max_tokens=1).tokens
        with pytest.raises(InputError, match="the role 'critic', which the chat template does not"):
            engine.generate(said, max_tokens=1)


@pytest.mark.parametrize(
    ("template", "roles"),
    [
        (KNOWS_FOUR, ["system", "user", "assistant", "critic", "user"]),
        (WRITES_ANY, ["developer", "user", "tool", "user_2", "wizard"]),
        (SPELLS_OUT, ["user", "wizard"]),  # the text is not in the prompt as it stands
        (SPELLS_OUT, ["user", "tool"]),  # left out, but on purpose
    ],
)
def test_what_a_template_names_or_writes_is_legal(template: str, roles: list[str]) -> None:
    assert asked(template, *roles) == ""


THINKS = (
    "{% if enable_thinking is defined and enable_thinking %}{{ bos_token }}<think>{% endif %}"
    "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
    "{% generation %}{{ messages[-1].content }}{% endgeneration %}"
    "{% if add_generation_prompt %}{% set opening = '<reply>' %}{{ opening }}{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "name", "told"),
    [
        (THINKS, "enable_thinkng", "; did you mean 'enable_thinking'?"),
        (THINKS, "effort", "; it reads enable_thinking"),
        (WRITES_ANY, "enable_thinking", "; it reads no others"),
        ({"default": WRITES_ANY, "tool_use": THINKS}, "loop", "; it reads enable_thinking"),
        (THINKS, "enable_thinking", None),
        ({"default": WRITES_ANY, "tool_use": THINKS}, "enable_thinking", None),
        (THINKS, "documents", None),  # transformers' own
    ],
)
def test_an_option_that_the_template_never_reads_is_told_once(
    template: str | dict[str, str], name: str, told: str | None
) -> None:
    messages = [{"role": "user", "content": "hello"}]
    with engine_writing(template) as engine:
        for expected in (told, None):  # the second time everybody knows
            engine.check(messages, template_options={name: None})  # its caller hears nothing
            result = engine.generate(messages, max_tokens=1, template_options={name: None})
            said = f"the chat template never reads {name!r}{expected}"
            notice = Fault("engine", "template_options", said, notice=True)
            assert result.faults == ([notice] if expected else [])


def test_a_developer_after_the_system_ends_its_message() -> None:
    first_only = (
        "{{ messages[0].content }}{% for m in messages[1:] if m.role != 'system' %}"
        "<user>{{ m.content }}<end>{% endfor %}<reply>"
    )
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "hi"},
    ]
    with engine_writing(first_only) as engine:
        assert engine.check(messages).text == "be brief\n\nbe kind<user>hi<end><reply>"


# --- what OpenAI's format lets out, and some templates want ---------------------------------------

WANTS_ALL = (
    "{% for t in tools %}{{ t.function.name + t.function.description }}"
    "{% for k, p in t.function.parameters.properties.items() %}{{ k + p.description }}{% endfor %}"
    "{% endfor %}{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{% if c.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}{{ c.id }}"
    "{% endfor %}{{ m.tool_call_id or '' }}{{ m.content }}{% endfor %}"
)


def conversation(*ids: str) -> list[dict[str, Any]]:
    function = {"name": "now", "arguments": "{}"}
    made: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for each in ids:
        call = {"id": each, "type": "function", "function": function}
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": each, "content": "ok"})
    return made


@pytest.mark.parametrize(
    ("function", "written"),
    [
        ({"name": "now"}, "now"),
        ({"name": "now", "description": "it"}, "nowit"),
        ({"name": "now", "parameters": {"properties": {"at": {"type": "string"}}}}, "nowat"),
    ],
)
def test_what_tools_need_not_say_is_filled_in_where_a_template_wants_it(
    function: dict[str, Any], written: str
) -> None:
    tools = [{"type": "function", "function": function}]
    with engine_writing(WANTS_ALL) as engine:
        assert engine.check(conversation(), tools=tools).text == f"{written}go"


def test_ids_of_calls_are_short_where_a_template_wants_it_and_results_still_name_them() -> None:
    tools = [{"type": "function", "function": {"name": "now", "description": "it"}}]
    with engine_writing(WANTS_ALL) as engine:
        text = engine.check(conversation("call_1234567890ab", "abcdefgh9"), tools=tools).text
    head, first, second = (
        text.removesuffix("ok").split("go")[0],
        *text.split("go")[1].split("ok")[:2],
    )
    assert head == "nowit"
    assert first[:9] == first[9:]
    assert first[:9].isalnum()
    assert second == "abcdefgh9" * 2


def test_a_template_that_refuses_that_too_is_told_by_its_first_word() -> None:
    template = "{{ raise_exception('no calls, ' ~ messages[-1].tool_call_id) }}"
    with (
        engine_writing(template) as engine,
        pytest.raises(TemplateError, match="no calls, call_12345"),
    ):
        engine.check(conversation("call_12345"))


# --- messages of the system that stand elsewhere than at the beginning --------------------

FIRST_ONLY = (
    "{% if messages[0].role in ('system', 'developer') %}<user>{{ messages[0].content }}<end>"
    "{% endif %}{% for m in messages if m.role == 'user' %}<user>{{ m.content }}<end>{% endfor %}"
)
REFUSES = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('only at the beginning') }}{% endif %}<user>{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_later_message_that_the_template_leaves_out_is_refused(role: str) -> None:
    assert asked(FIRST_ONLY, "system", "user", role, "user") == (
        f"message 2 has the role {role!r}, which the chat template writes at the beginning only: "
        "put what it says there, or into a message of the user"
    )


@pytest.mark.parametrize("template", [KNOWS_FOUR, NAMES_ONE])
def test_a_later_message_that_the_template_writes_is_legal(template: str) -> None:
    assert asked(template, "user", "system", "user") == ""


@pytest.mark.parametrize("template", [FIRST_ONLY, REFUSES])
@pytest.mark.parametrize(
    "roles", [("system", "system"), ("system", "developer"), ("system", "system", "system")]
)
def test_several_at_the_beginning_become_one_where_the_template_takes_one(
    template: str, roles: tuple[str, ...]
) -> None:
    said = [{"role": role, "content": f"said by {at}"} for at, role in enumerate((*roles, "user"))]
    with engine_writing(template) as engine:
        request = engine.stream(said, max_tokens=1).request
    assert request.messages is not None
    whole = "\n\n".join(f"said by {at}" for at in range(len(roles)))
    assert [dict(message) for message in request.messages] == [
        {"role": "system", "content": whole},
        {"role": "user", "content": f"said by {len(roles)}"},
    ]
    assert whole in request.prompt_text


def test_several_at_the_beginning_stay_where_the_template_takes_them() -> None:
    said = [{"role": "system", "content": f"part {at}"} for at in range(2)]
    with engine_writing(KNOWS_FOUR) as engine:
        text = engine.stream([*said, {"role": "user", "content": "go"}]).request.prompt_text
    assert text == "<user>part 0<end><user>part 1<end><user>go<end><reply>"


@pytest.mark.parametrize(
    ("template", "roles"),
    [
        (KNOWS_FOUR, ("system", "developer", "user", "usr")),
        (REFUSES, ("system", "system", "user", "usr")),
        (REFUSES, ("system", "developer", "system", "usr", "user")),
        (KNOWS_FOUR, ("user", "system", "developer", "user", "usr", "user")),
    ],
)
def test_a_message_has_the_callers_number_where_others_were_joined(
    template: str, roles: tuple[str, ...]
) -> None:
    assert asked(template, *roles).startswith(f"message {roles.index('usr')} has the role 'usr'")


def test_a_later_message_has_the_role_that_the_caller_gave_it() -> None:
    template = FIRST_ONLY.replace("in ('system', 'developer')", "== 'system'")
    told = asked(template, "system", "developer", "user", "developer", "user")
    assert told.startswith("message 3 has the role 'developer', which the chat template writes at")
