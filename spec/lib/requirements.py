# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# requirements.py: loads and checks requirements.yaml, whose schema is in its head. manual.py prints the table from it.

import yaml

from contract import ContractError, keys, need


def load(spec, path):
    try:
        with open(path, encoding="utf-8") as f:
            items = yaml.safe_load(f)
    except (OSError, yaml.YAMLError) as error:
        raise ContractError(f"{path}: {' '.join(str(error).split())}") from None
    rules, seen = {rule["name"] for rule in spec.guest_errors["list"]}, set()
    for item in items:
        where = f"requirements.yaml: {item.get('id')}"
        keys(item, where, ("id", "chapter", "text", "tests"), ("guest_error",))
        need(item["id"] not in seen, where, "is there twice")
        need(item.get("guest_error") in rules | {None}, where, f"no such guest error {item.get('guest_error')}")
        seen.add(item["id"])
    return items
