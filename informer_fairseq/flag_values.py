"""Values of flags that are written as Python: numbers, strings, lists and sums of them, and nothing that runs."""

import ast
import operator
from typing import Any

from informer_fairseq.errors import InputError

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_LONGEST = 10_000


def read_value(text: Any) -> Any:
    """The value of an expression of literals and ``+ - * / //``, such as ``(0.9, 0.98)`` or ``[(512, 3)] * 20``.

    Names of variables, calls and everything else that could run code are refused.

    Raises:
        InputError: there is something else in it.
    """
    if not isinstance(text, str):
        raise TypeError(f"a flag's value is a string, not {type(text).__name__}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ZeroDivisionError, MemoryError, RecursionError):
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise InputError(
            f"{shown!r} is refused as the value of a flag: only numbers, strings, lists and sums of them are read, "
            "nothing that could run code; give such a value, and load only checkpoints you trust"
        ) from None


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        for sequence, times in ((left, right), (right, left)):
            if isinstance(node.op, ast.Mult) and hasattr(sequence, "__len__") and len(sequence) * times > _LONGEST:
                raise ValueError("too long")
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.List):
        return list(map(_value, node.elts))
    return ast.literal_eval(node)
