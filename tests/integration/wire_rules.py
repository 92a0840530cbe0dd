"""What a real provider would refuse in a request, wire by wire, as strictly as the strictest that speaks it.

``refusals(path, body)`` lists every rule a request breaks, in words close to those the provider uses. A conversation
must be acceptable however its last turn ended: each call has its result, right after it; nothing is empty; reasoning
goes back whole, sealed and not last; limits and budgets fit into one another.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

__all__ = ["refusals"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]+")


def refusals(path: str, body: Any) -> list[str]:
    """Why the provider at this path would not take the request; empty when it would."""
    if path.partition("?")[0].endswith("/messages"):
        return list(_anthropic(body))
    if ":streamGenerateContent" in path:
        return list(_google(body))
    if path.endswith("/converse-stream"):
        return list(_bedrock(body))
    return list(_responses(body) if path.endswith("/responses") else _chat(body))


# Anthropic's messages


def _anthropic(body: Any) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: field required"
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0]["role"] != "user":
        yield "messages: first message must use the user role"
    if messages[-1]["role"] != "user":
        yield "messages: the conversation must end with a user message"
    yield from _anthropic_thinking(body)
    tools = body.get("tools", [])
    yield from _tool_names([tool["name"] for tool in tools])
    blocks = [*_blocks(body.get("system", [])), *(b for m in messages for b in _blocks(m["content"])), *tools]
    if sum("cache_control" in block for block in blocks) > 4:
        yield "a maximum of 4 blocks with cache_control may be provided"
    if not tools and any(b.get("type") in ("tool_use", "tool_result") for b in blocks):
        yield "requests which include tool_use or tool_result blocks must define tools"
    for block in _blocks(body.get("system", [])):
        if not block["text"].strip():
            yield "system: text content blocks must be non-empty"
    used: list[str] = []
    owed: list[str] = []
    for index, message in enumerate(messages):
        content = _blocks(message["content"])
        place = f"messages.{index}"
        if not content:
            yield f"{place}: all messages must have non-empty content"
            continue
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if Counter(results) != Counter(owed):
            yield f"{place}: tool_use ids {owed} without their tool_result blocks right after, which are {results}"
        kinds = [block["type"] for block in content]
        if results and kinds[: len(results)] != ["tool_result"] * len(results):
            yield f"{place}: tool_result blocks must come first"
        owed = [block["id"] for block in content if block["type"] == "tool_use"]
        used += owed
        if message["role"] == "assistant" and kinds[-1] in ("thinking", "redacted_thinking"):
            yield f"{place}: the final block in an assistant message cannot be thinking"
        for block in content:
            yield from (f"{place}: {what}" for what in _anthropic_block(message["role"], block))
    if len(used) != len(set(used)):
        yield "messages: tool_use ids must be unique"


def _anthropic_thinking(body: Any) -> Iterator[str]:
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "disabled":
        return
    if thinking["type"] == "enabled":
        if thinking["budget_tokens"] < 1024:
            yield "thinking.enabled.budget_tokens: must be at least 1024"
        if thinking["budget_tokens"] >= body["max_tokens"]:
            yield "max_tokens must be greater than thinking.budget_tokens"
    if body.get("temperature", 1) != 1:
        yield "temperature may only be set to 1 when thinking is enabled"
    asked = [block["type"] for block in _blocks(body["messages"][-1]["content"])]
    answered = [m for m in body["messages"] if m["role"] == "assistant"]
    if "tool_result" in asked and answered and _blocks(answered[-1]["content"])[0]["type"] == "tool_use":
        yield "a final assistant message must start with a thinking block when thinking is enabled"


def _anthropic_block(role: str, block: Any) -> Iterator[str]:
    allowed = {"assistant": ("text", "thinking", "redacted_thinking", "tool_use")}
    if block["type"] not in allowed.get(role, ("text", "image", "document", "tool_result")):
        yield f"{block['type']} is not allowed with the role {role}"
    match block["type"]:
        case "text" if not block["text"].strip():
            yield "text content blocks must contain non-whitespace text"
        case "thinking" if not block.get("signature"):
            yield "thinking.signature: field required"
        case "thinking" if "cache_control" in block:
            yield "thinking cannot have cache_control"
        case "tool_use":
            if _CALL_ID.fullmatch(block["id"]) is None:
                yield f"tool_use.id: {block['id']!r} should match ^[a-zA-Z0-9_-]+$"
            if not isinstance(block["input"], dict):
                yield "tool_use.input: input should be a valid dictionary"
            yield from _tool_names([block["name"]])
        case "tool_result":
            inner = block.get("content", "")
            if block.get("is_error") and not inner:
                yield "tool_result: content cannot be empty if is_error is true"
            for part in _blocks(inner) if inner else ():
                if part["type"] == "text" and not part["text"].strip():
                    yield "tool_result: text content blocks must contain non-whitespace text"


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


# OpenAI's chat completions


def _chat(body: Any) -> Iterator[str]:
    messages = body.get("messages")
    if not messages:
        yield "messages: array too short"
        return
    if messages[-1]["role"] not in ("user", "tool"):
        yield "messages: the last one must be of the role user or tool"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens and max_completion_tokens cannot both be set"
    if "tools" in body and not body["tools"]:
        yield "tools: array too short"
    if "tool_choice" in body and "tools" not in body:
        yield "tool_choice is only allowed when tools are specified"
    yield from _tool_names([tool["function"]["name"] for tool in body.get("tools", [])])
    owed: list[str] = []
    for index, message in enumerate(messages):
        role, content, place = message["role"], message.get("content"), f"messages[{index}]"
        if role == "tool":
            if message["tool_call_id"] not in owed:
                yield f"{place}: a tool message must follow the message with its tool_calls"
            else:
                owed.remove(message["tool_call_id"])
            if not isinstance(content, str | list):
                yield f"{place}.content: expected a string or an array"
            continue
        if owed:
            yield f"{place}: tool_call_ids without response messages: {owed}"
        owed = []
        if role not in ("system", "developer", "user", "assistant"):
            yield f"{place}.role: {role}"
        if role == "assistant" and message.get("tool_calls") is not None:
            # Mistral's own client, which alone sends every field, also sends a list of none.
            if not message["tool_calls"] and "presence_penalty" not in body:
                yield f"{place}.tool_calls: array too short"
            for call in message["tool_calls"]:
                yield from (f"{place}.tool_calls: {what}" for what in _chat_call(call))
                owed.append(call["id"])
            if len(owed) != len(set(owed)):
                yield f"{place}.tool_calls: ids must be unique"
        elif not content:
            yield f"{place}.content: expected a string or an array, got {content!r}"
        if isinstance(content, str) and not content.strip() and role != "system":
            yield f"{place}.content: is empty"
    if owed:
        yield f"tool_call_ids without response messages: {owed}"


def _chat_call(call: Any) -> Iterator[str]:
    if call["type"] != "function" or not 1 <= len(call["id"]) <= 40:
        yield f"id {call['id']!r}: string too long, expected a maximum length of 40"
    if not isinstance(call["function"]["arguments"], str):
        yield "arguments: expected a string"
    elif not isinstance(_parsed(call["function"]["arguments"]), dict):
        yield "arguments: must be JSON, an object"
    yield from _tool_names([call["function"]["name"]])


# OpenAI's responses


def _responses(body: Any) -> Iterator[str]:
    items = body.get("input")
    if not items:
        yield "input: one of input, previous_response_id or conversation must be provided"
        return
    if body.get("max_output_tokens", 16) < 16:
        yield "max_output_tokens: integer below minimum value, expected at least 16"
    if items[-1].get("role") == "assistant" or items[-1].get("type") in ("function_call", "reasoning"):
        yield "input: the last item must be something to answer"
    yield from _tool_names([tool["name"] for tool in body.get("tools", [])])
    called: list[str] = []
    answered: list[str] = []
    for index, item in enumerate(items):
        place, following = f"input[{index}]", items[index + 1] if index + 1 < len(items) else {}
        match item.get("type", "message"):
            case "message":
                yield from (f"{place}: {what}" for what in _responses_message(item))
            case "function_call":
                if not 1 <= len(item["call_id"]) <= 64:
                    yield f"{place}.call_id: string too long, expected a maximum length of 64"
                if not isinstance(_parsed(item["arguments"]), dict):
                    yield f"{place}.arguments: must be JSON, an object"
                yield from _tool_names([item["name"]])
                called.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in called:
                    yield f"{place}: no tool call found for function call output with call_id {item['call_id']}"
                answered.append(item["call_id"])
            case "reasoning":
                if not item.get("encrypted_content"):
                    yield f"{place}: item {item['id']!r} not found: items are not persisted when store is false"
                if following.get("type") not in ("reasoning", "function_call") and following.get("role") != "assistant":
                    yield f"{place}: reasoning was provided without its required following item"
            case other:
                yield f"{place}.type: {other}"
    if Counter(called) != Counter(answered) or len(called) != len(set(called)):
        yield f"no tool output found for function calls: {called} against {answered}"
    if body.get("store") is not False:
        yield "store: what is said would be kept"


def _responses_message(item: Any) -> Iterator[str]:
    content = item.get("content")
    if item.get("role") not in ("user", "assistant", "system", "developer"):
        yield f"role: {item.get('role')}"
    if not content or (isinstance(content, str) and not content.strip()):
        yield f"content: is empty: {content!r}"
    if isinstance(content, list):
        allowed = (
            ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
        )
        yield from (f"content: {part['type']} is not allowed" for part in content if part["type"] not in allowed)


# Google's content, Amazon's converse


def _google(body: Any) -> Iterator[str]:
    contents = body.get("contents")
    if not contents:
        yield "contents is not specified"
        return
    # Responses to calls have a content of their own; what the user says after them comes in the next one.
    told = [
        content for content, after in zip(contents, [*contents[1:], None], strict=True) if not _leads(content, after)
    ]
    yield from _turns([content["role"] for content in told], "model")
    owed = 0
    for index, content in enumerate(contents):
        parts, place = content.get("parts"), f"contents[{index}]"
        if not parts:
            yield f"{place}.parts must not be empty"
            continue
        answered = sum("functionResponse" in part for part in parts)
        if answered != owed:
            yield f"{place}: {owed} function calls were followed by {answered} function responses"
        calls = [part for part in parts if "functionCall" in part]
        owed = len(calls)
        if calls and "thoughtSignature" not in calls[0]:
            yield f"{place}: function call is missing a thought_signature"
        yield from (f"{place}: empty text" for part in parts if part.get("text") == "")


def _leads(content: Any, after: Any) -> bool:
    responses = all("functionResponse" in part for part in content.get("parts") or [{}])
    return responses and after is not None and after["role"] == "user"


def _bedrock(body: Any) -> Iterator[str]:
    messages = body.get("messages")
    if not messages:
        yield "messages: a conversation must start with a user message"
        return
    yield from _turns([message["role"] for message in messages], "assistant")
    owed: list[str] = []
    for index, message in enumerate(messages):
        content, place = message["content"], f"messages.{index}"
        answered = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
        if Counter(answered) != Counter(owed):
            yield f"{place}: toolUse {owed} without their toolResult blocks, which are {answered}"
        owed = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
        yield from (f"{place}: blank text" for block in content if not block.get("text", "x").strip())
        if message["role"] == "assistant" and "reasoningContent" in content[-1]:
            yield f"{place}: the final block cannot be reasoning"


def _turns(roles: list[str], other: str) -> Iterator[str]:
    if roles != [("user", other)[place % 2] for place in range(len(roles))] or roles[-1] != "user":
        yield f"roles must alternate between user and {other}, and end with user: {roles}"


# What they share


def _tool_names(names: list[str]) -> Iterator[str]:
    yield from (
        f"tool name {name!r} should match ^[a-zA-Z0-9_-]{{1,64}}$" for name in names if not _NAME.fullmatch(name)
    )
    if len(names) != len(set(names)):
        yield "tools: names must be unique"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
