"""Parameters of a client's requests: only the fields in use. Unknown fields, ``_meta`` too, are ignored."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from clew.convert import convert, explain_type_error
from clew.fronts.acp.rpc import INVALID_PARAMS, Refused

__all__ = [
    "AudioBlock",
    "Authenticate",
    "Block",
    "ClientCapabilities",
    "ImageBlock",
    "Initialize",
    "LinkBlock",
    "ListSessions",
    "McpServer",
    "NamedSession",
    "NewSession",
    "OpenedSession",
    "Prompt",
    "ResourceBlock",
    "SetMode",
    "SetOption",
    "SetTitle",
    "TextBlock",
    "read",
]

T = TypeVar("T")


class Params(msgspec.Struct, frozen=True, rename="camel"):
    """The base class, with camelCase keys as in the protocol."""


class FileSystem(Params, frozen=True):
    read_text_file: bool = False
    write_text_file: bool = False


class SessionOffers(Params, frozen=True):
    """Capabilities: ``{}`` is yes, None or absent is no."""

    compaction: dict[str, Any] | None = None
    notices: dict[str, Any] | None = None


class Elicitation(Params, frozen=True):
    form: dict[str, Any] | None = None


class ClientCapabilities(Params, frozen=True):
    fs: FileSystem | None = None
    terminal: bool | None = None
    session: SessionOffers | None = None
    elicitation: Elicitation | None = None

    @property
    def reads_files(self) -> bool:
        return self.fs is not None and self.fs.read_text_file

    @property
    def writes_files(self) -> bool:
        return self.fs is not None and self.fs.write_text_file

    @property
    def shows_compaction(self) -> bool:
        return self.session is not None and self.session.compaction is not None

    @property
    def shows_notices(self) -> bool:
        return self.session is not None and self.session.notices is not None

    @property
    def asks_by_form(self) -> bool:
        return self.elicitation is not None and self.elicitation.form is not None


class Initialize(Params, frozen=True):
    protocol_version: int
    client_capabilities: ClientCapabilities | None = None


class Authenticate(Params, frozen=True):
    method_id: str


class Named(Params, frozen=True):
    name: str
    value: str


class McpServer(Params, frozen=True):
    """A server that is a program (``command``) or has an address (``url``, of ``type`` http or sse)."""

    name: str
    type: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[Named, ...] = ()
    url: str | None = None
    headers: tuple[Named, ...] = ()


class NewSession(Params, frozen=True):
    cwd: str
    mcp_servers: tuple[McpServer, ...]
    additional_directories: tuple[str, ...] = ()


class OpenedSession(Params, frozen=True):
    """The parameters of load, resume and fork. A resume may omit ``mcpServers``."""

    session_id: str
    cwd: str
    mcp_servers: tuple[McpServer, ...] = ()
    additional_directories: tuple[str, ...] = ()


class NamedSession(Params, frozen=True):
    session_id: str


class SetTitle(Params, frozen=True):
    session_id: str
    title: str


class ListSessions(Params, frozen=True):
    cwd: str | None = None
    cursor: str | None = None


class SetMode(Params, frozen=True):
    session_id: str
    mode_id: str


class SetOption(Params, frozen=True):
    session_id: str
    config_id: str
    value: str | bool


class Block(msgspec.Struct, frozen=True, rename="camel", tag_field="type"):
    """A content block."""


class TextBlock(Block, frozen=True, tag="text"):
    text: str


class ImageBlock(Block, frozen=True, tag="image"):
    data: str
    mime_type: str
    uri: str | None = None


class AudioBlock(Block, frozen=True, tag="audio"):
    data: str
    mime_type: str


class LinkBlock(Block, frozen=True, tag="resource_link"):
    name: str
    uri: str


class Resource(Params, frozen=True):
    uri: str
    text: str | None = None
    blob: str | None = None
    mime_type: str | None = None


class ResourceBlock(Block, frozen=True, tag="resource"):
    resource: Resource


class Prompt(Params, frozen=True):
    session_id: str
    prompt: tuple[TextBlock | ImageBlock | AudioBlock | LinkBlock | ResourceBlock, ...]


def read(params: Any, kind: type[T]) -> T:
    """Convert the parameters of a request; raise Refused with the path of an invalid one."""
    try:
        return convert({} if params is None else params, kind)
    except msgspec.ValidationError as error:
        raise Refused(INVALID_PARAMS, f"invalid parameters: {explain_type_error(error, kind)}") from None
