"""What --policy names: a preset or a file."""

from gantree.cli.reading import read_text, source_of
from gantree.formats import read_policy
from gantree.formats.policies import PRESET_NAMES, preset
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.text.words import did_you_mean


def policy_of(word: str | None) -> Policy:
    """The preset of that name, else the policy in that file; the default preset for None.

    Raises BadInput for a file that cannot be read and is no preset either, BadFields for what is wrong in it.
    """
    if word is None:
        return preset(PRESET_NAMES[0])
    if word in PRESET_NAMES:
        return preset(word)
    try:
        text = read_text(word)
    except BadInput as error:
        allowed = f"a policy file, or a preset ({', '.join(PRESET_NAMES)})"
        raise BadInput(
            f"--policy: {error}; allowed: {allowed}. {did_you_mean(word, PRESET_NAMES)}".rstrip()
        ) from None
    return read_policy(text, source_of(word))
