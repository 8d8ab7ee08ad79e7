"""JSON as a person reads it: one line for each stage, tensor and parameter."""

import json


def tidy(value):
    """Times to a tenth of a nanosecond; float noise is no information."""
    if isinstance(value, float):
        return round(value, 10)
    if isinstance(value, dict):
        return {key: tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [tidy(item) for item in value]
    return value


def json_text(trace):
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {top_level_text(key, value)}" for key, value in tidy(trace).items()) + "\n}\n"


def top_level_text(key, value):
    if key == "allocations":
        return "{\n    " + ",\n    ".join(f"{json.dumps(inner)}: {allocations_text(of)}" for inner, of in value.items()) + "\n  }"
    if key == "source":
        return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n  ")
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join("    " + json.dumps(item, ensure_ascii=False) for item in value) + "\n  ]"
    return json.dumps(value, ensure_ascii=False)


def allocations_text(value):
    """One line for each stage, and one for plain training."""
    if isinstance(value, list):
        return "[\n" + ",\n".join("      " + json.dumps(stage) for stage in value) + "\n    ]"
    return json.dumps(value)
