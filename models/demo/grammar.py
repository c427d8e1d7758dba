"""The small grammar that the corpus is written in.

A template is plain text with choices and names: "{The|That} lamp of $who" picks
one alternative of each brace (they nest) and puts the value of a name after each
dollar sign. "$Who" is the value of `who` with a capital letter. Every choice is
drawn from one seeded generator, so that a seed always gives the same text.
"""

import random
import re


class Writer:
    """Draws alternatives and fills names; owns the random generator."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, options):
        return self.rng.choice(options)

    def sample(self, options, count):
        return self.rng.sample(options, min(count, len(options)))

    def chance(self, probability):
        return self.rng.random() < probability

    def say(self, template, **names):
        """One text from a template: choices first, names after."""
        text = self._choose(template)
        return re.sub(r"\$([A-Za-z_]\w*)", lambda m: self._fill(m.group(1), names), text)

    @staticmethod
    def _fill(name, names):
        if name in names:
            return str(names[name])
        value = str(names[name[0].lower() + name[1:]])
        return value[0].upper() + value[1:]

    def _choose(self, template):
        innermost = re.compile(r"\{([^{}]*)\}")
        while True:
            match = innermost.search(template)
            if match is None:
                return template
            choice = self.rng.choice(match.group(1).split("|"))
            template = template[: match.start()] + choice + template[match.end():]


def number(value):
    """A number as prose writes it: no trailing zeros, thousands with a comma."""
    rounded = round(value, 2)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    return f"{rounded:,.2f}".rstrip("0").rstrip(".")


def a(noun):
    """The noun with its indefinite article."""
    return ("an " if noun[0].lower() in "aeiou" and not noun.startswith("uni") else "a ") + noun
