"""What is wrong with a container or with what should become one."""

from __future__ import annotations

from pytest_gnus.errors import GnusError


class SGFP4Error(GnusError):
    """A container, a shape or weights that break a rule of the format.

    `source` is the file, `tensor` the weight's name, `offset` the byte of the container where the rule is
    broken; each is empty or None where it is not known. `rule` is what should hold.
    """

    def __init__(self, rule: str, *, source: str = "", tensor: str = "", offset: int | None = None) -> None:
        self.rule = rule
        self.source = source
        self.tensor = tensor
        self.offset = offset
        where = [source or "SGFP4 container"]
        if tensor:
            where.append(f"tensor {tensor}")
        if offset is not None:
            where.append(f"byte {offset}")
        super().__init__(f"{', '.join(where)}: {rule}")

    def named(self, source: str, tensor: str) -> SGFP4Error:
        """The same fault with the names that it does not have yet."""
        return SGFP4Error(
            self.rule, source=self.source or source, tensor=self.tensor or tensor, offset=self.offset
        )
