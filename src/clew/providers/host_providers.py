"""Providers that an embedding program supplies, with descriptions of their models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from clew.errors import InvalidInput
from clew.providers.base import ModelInfo, ModelListing, Provider
from clew.providers.naming import parse_model
from clew.transcript.session import Model, read_model
from clew.transcript.usage import Usage

__all__ = ["ProviderSet"]

_WINDOW: Final = 32_000
_MAX_OUTPUT: Final = 4_000


class ProviderSet:
    """Implementation of :class:`clew.providers.base.Providers` for given providers by id.

    ``models`` describes their models; other models can be used too, with an assumed window of 32,000 tokens. Without a
    ``default`` the first of ``models`` is it. ``cost`` returns US dollars if they are known.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        models: Iterable[ModelInfo] = (),
        default: str | Model | None = None,
        cost: Callable[[Model, Usage], float | None] | None = None,
    ) -> None:
        self._providers = dict(providers)
        self._infos = {str(info.model): info for info in models}
        if not self._providers:
            raise InvalidInput("no provider is given; give one, as {'name': provider}")
        first = next((info.model for info in self._infos.values()), Model(next(iter(self._providers)), "model"))
        self._default = first if default is None else read_model(default)
        self._cost = cost

    def get(self, provider_id: str) -> Provider:
        try:
            return self._providers[provider_id]
        except KeyError:
            known = ", ".join(self._providers)
            raise InvalidInput(f"there is no provider {provider_id!r}; there are {known}") from None

    def parse(self, named: str | Model | dict[str, Any]) -> Model:
        return parse_model(
            named,
            variants_of=lambda model: self.info(model).variants,
            is_id=lambda model: str(model) in self._infos,
            takes_colons=lambda _: False,
        )

    def info(self, model: Model) -> ModelInfo:
        self.get(model.provider_id)
        return self._infos.get(str(model)) or self.guess(model)

    def guess(self, model: Model) -> ModelInfo:
        """Return the assumptions about an unknown model."""
        return ModelInfo(model=model, window=_WINDOW, max_output=_MAX_OUTPUT, known=False, output_known=False)

    def cost(self, model: Model, usage: Usage) -> float | None:
        return None if self._cost is None else self._cost(model, usage)

    def models(self) -> Sequence[ModelListing]:
        infos = [*self._infos.values()]
        if str(self._default) not in self._infos:
            infos.append(self.info(self._default))
        return [
            ModelListing(
                id=str(info.model),
                window=info.window,
                max_output=info.max_output,
                usable=True,
                default=info.model == self._default,
                variants=info.variants,
            )
            for info in infos
        ]

    def default_model(self) -> Model:
        return self._default

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()
