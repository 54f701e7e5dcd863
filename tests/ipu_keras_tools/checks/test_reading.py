"""How far scripts are followed, and how long that takes."""

import ast

import pytest

from ipu_keras_tools.checks.expressions import Expressions
from ipu_keras_tools.checks.reading import findings_of

WRONG = "keras.optimizers.SGD(lr=1)"
START = "import keras, tensorflow as tf\nd = tf.data.Dataset.range(9)\n"


def calls_of(names, of):
    return "".join(f"  {name}(n)\n" for name in names) + f"  {of}\n"


# By kind, a script of any size.
SCRIPTS = {
    "chained calls": lambda n: f"d{'.map(f)' * n}\n{WRONG}",
    "chained calls with lambdas": lambda n: f"d{'.map(lambda x: x)' * n}\n{WRONG}",
    "a sum": lambda n: f"{'a + ' * n}{WRONG}",
    "cases": lambda n: "if a: pass\n" + "elif b: pass\n" * n + f"else: {WRONG}",
    "choices": lambda n: f"{'a if b else ' * n}{WRONG}",
    "lambdas within each other": lambda n: f"{'lambda: ' * n}{WRONG}",
    "calls of itself": lambda n: "def f(n):\n" + calls_of(["f"] * n, WRONG) + "f(3)",
    "calls of each other": lambda n: (
        "".join(
            f"def f{k}(n):\n" + calls_of([f"f{j}" for j in range(n % 30)], "pass")
            for k in range(n % 30)
        )
        + WRONG
    ),
    "calls of one": lambda n: "def f(x): return x\nx = f(f)\n" + "f(d)\n" * n + WRONG,
    "classes of each other": lambda n: (
        "class A0(keras.Model): pass\n"
        + "".join(
            f"class B{k}(A{k}): pass\nclass C{k}(A{k}): pass\nclass A{k + 1}(B{k}, C{k}): pass\n"
            for k in range(n)
        )
        + f"A{n}().reset_states()"
    ),
    "tuples of each other": lambda n: (
        "x = y = (0, 0)\n"
        + "x = (x, x)\ny = (y, y)\n" * n
        + f"def f(a):\n  if a: return x\n  return y\nf(3)\n{WRONG}"
    ),
    "long lists": lambda n: f"x = [{'d, ' * n}]\n" + "tf.stack(x)\n" * n + WRONG,
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_it_takes_linear_time(kind, monkeypatch):
    """Each part is looked at once, or as often as a function is followed, in 300 scripts."""
    visits = 0
    value = Expressions.value

    def counted(self, node, scope):
        nonlocal visits
        visits += 1
        return value(self, node, scope)

    monkeypatch.setattr(Expressions, "value", counted)
    for size in (*range(1, 24), 700, 1400):
        source = START + SCRIPTS[kind](size)
        visits = 0
        assert len(findings_of(source, "").problems) == 1, size
        assert visits <= 34 * sum(1 for _ in ast.walk(ast.parse(source)))


def test_what_is_followed_so_often_is_followed_no_further():
    """What it returns then is not known, so that nothing is invented."""
    source = (
        START + "def f(): return keras.Sequential()\n" + "f().fit\n" * 40 + "f().reset_states()"
    )
    assert findings_of(source, "").problems == ()
    assert len(findings_of(source.replace("f().fit\n" * 20, ""), "").problems) == 1


@pytest.mark.parametrize("source", ["not " * 50_000 + "x", "x = '\0'", b"x = '\xe9'"])
def test_what_python_does_not_read(source):
    with pytest.raises(SyntaxError):
        findings_of(source, "")


def test_escapes_that_python_warns_of():
    assert findings_of(r"x = '\d'", "").problems == ()
