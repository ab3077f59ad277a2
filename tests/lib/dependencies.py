#!/usr/bin/env python3
"""Checks every dependency against deny.toml with nothing but cargo: licence, banned names, source.

cargo-deny reads more (the texts of licences, duplicates); `./test deny` runs it. This runs everywhere, in a second.
"""
import json
import re
import subprocess
import sys
import tomllib

with open("deny.toml", "rb") as file:
    RULES = tomllib.load(file)
ALLOWED = set(RULES["licenses"]["allow"])
BANNED = {ban["crate"]: ban["reason"] for ban in RULES["bans"]["deny"]}


def is_allowed(expression):
    """Whether an SPDX expression of AND, OR and brackets can be met with allowed licences alone."""
    tokens = re.findall(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?", expression.replace("/", " OR "))

    def either():
        met = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        token = tokens.pop(0)
        if token != "(":
            return token in ALLOWED
        met = either()
        tokens.pop(0)
        return met

    return either()


def problems(package):
    if package["source"] is None:
        return
    if not package["source"].startswith("registry+"):
        yield f"comes from {package['source']}"
    if package["name"] in BANNED:
        yield f"is banned: {BANNED[package['name']]}"
    if not package["license"]:
        yield "names no licence"
    elif not is_allowed(package["license"]):
        yield f"has the licence {package['license']}, which deny.toml does not allow"


def main():
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    found = [f"{one['name']} {one['version']} {text}" for one in packages for text in problems(one)]
    print(f"{len(packages)} packages looked at")
    print("\n".join(found))
    # The check itself is checked: an expression that must be refused, and some that must not.
    assert not is_allowed("GPL-3.0") and not is_allowed("MIT AND GPL-3.0") and is_allowed("(MIT OR GPL-3.0) AND ISC")
    sys.exit(1 if found else 0)


main()
