"""What --policy names: a preset or a file."""

from gantree.cli.reading import read_text, source_of
from gantree.formats import read_policy
from gantree.policy.preset import PRESETS, Policy


def policy_of(word: str | None) -> Policy:
    """The preset of that name, else the policy in that file; the preset "gantree" for None.

    Raises BadInput for a file that cannot be read and is no preset either, BadFields for what is wrong in it.
    """
    if word is None:
        return PRESETS["gantree"]
    return PRESETS[word] if word in PRESETS else read_policy(read_text(word), source_of(word))
