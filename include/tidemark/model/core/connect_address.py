"""The address of a Spark Connect server: `sc://HOST:PORT/;use_ssl=true;token=…`."""

from urllib.parse import quote, unquote, urlsplit

_SET_BY_TIDEMARK = ("session_id", "user_agent")
_NEXT = "write sc://HOST:PORT/;NAME=VALUE;NAME=VALUE"


def add_parameter(address: str, name: str, value: str) -> str:
    """Returns the address with one more parameter, whose value may contain any character."""
    base = address if "/;" in address else f"{address.rstrip('/')}/"
    return f"{base};{name}={quote(value, safe='')}"


def parameters_of(address: str) -> dict[str, str]:
    """Returns the parameters of a valid address; the values may be secret."""
    pairs = (part.partition("=") for part in address.partition("/;")[2].split(";") if part)
    return {name: unquote(value) for name, _, value in pairs}


def refuse_address(address: str, *, tokens: int) -> None:
    """Checks an address with parameters, or one that a token belongs to.

    Args:
        address: `TIDEMARK_SPARK`; empty = not set.
        tokens: how many settings besides the address give a token.

    Raises:
        ValueError: the address is invalid, or has no or two tokens where it must have one. The message names
            parameters, and never contains a value.
    """
    if not address.startswith("sc://"):
        raise ValueError("TIDEMARK_SPARK_TOKEN needs the TIDEMARK_SPARK of a Connect server: sc://HOST:PORT")
    before, _, text = address.partition("/;")
    if ";" in before or not urlsplit(before).hostname:
        raise ValueError(f"TIDEMARK_SPARK has no host or no slash before its parameters: {_NEXT}")
    names = [part.partition("=")[0] for part in text.split(";") if part]
    if not all(part.count("=") == 1 and not part.startswith("=") for part in text.split(";") if part):
        raise ValueError(f"TIDEMARK_SPARK has a parameter that is not NAME=VALUE: {_NEXT}; quote a value as in a URL")
    double = sorted({name for name in names if names.count(name) > 1})
    own = sorted(set(names).intersection(_SET_BY_TIDEMARK))
    if double or own:
        raise ValueError(
            f"TIDEMARK_SPARK has {', '.join(double)} twice" if double else f"Tidemark sets {own[0]} itself"
        )
    if tokens + names.count("token") > 1:
        raise ValueError("give one token: TIDEMARK_SPARK_TOKEN_FILE, TIDEMARK_SPARK_TOKEN, or token in TIDEMARK_SPARK")
    found = parameters_of(address)
    if found.get("use_ssl", "true").lower() not in ("true", "false"):
        raise ValueError("use_ssl of TIDEMARK_SPARK must be true or false")
    is_plain = found.get("use_ssl", "true").lower() == "false" and urlsplit(before).hostname != "localhost"
    if tokens + names.count("token") and is_plain:
        raise ValueError("a token is sent over TLS only: remove use_ssl=false from TIDEMARK_SPARK")
