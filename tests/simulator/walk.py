"""Settings of worlds, and walks through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Protocol, TypeVar

from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.ttl import Ttl
from tests.simulator.consumer_steps import LOCK_TIME
from tests.simulator.process import Options
from tests.simulator.proof import Violation
from tests.simulator.scene import FAR_AHEAD, Setting, Step
from tests.simulator.world import ACTIONS, World

__all__ = ["Choose", "any_setting", "by_rank", "far_ahead", "minimised", "replay", "walk", "walks"]

T = TypeVar("T")

_NAMES = list(ACTIONS)
_BOUNDS = list(accumulate(ACTIONS.values()))

_QUIET: list[tuple[str, ...]] = [
    (),
    (),
    (),
    ("crash", "stop", "evict"),
    ("crash", "leave", "evict", "rebalance", "stop"),
    ("compact",),
    ("stop", "compact", "reclaim", "browse"),
    ("give_up",),
    ("time_out", "stale", "tick"),
]
"""Actions left out of some worlds, where the others happen more often and together."""

_LIMITS: list[tuple[int, ...]] = [(4096,), (64,), (4096, 64), (64, 96, 128)]
"""The text limits of coordinators in worlds with long texts."""


class Choose(Protocol):
    """A choice of one of several options."""

    def __call__(self, options: Sequence[T], /) -> T: ...


def any_setting(choose: Choose) -> Setting:
    """Return the setting of a world."""
    long_texts = choose([False, True])
    text_limit = choose([64, 96, 128, 256, 4095, 4095]) if long_texts else 4095
    broker_limits = choose(_LIMITS) if long_texts else (4096,)
    return Setting(
        partitions=choose([1, 1, 2, 3]),
        keys=choose([3, 7, 7, 7] if long_texts else [1, 2, 3, 7]),
        queues=choose([1, 1, 1, 2]),
        existing=choose([0, 0, 4]),
        from_the_end=choose([False, False, True]),
        fenced=choose([True, True, False]),
        lenient=choose([False, True]),
        broker_limits=broker_limits,
        gap=choose([0, 1 << 21, 1 << 50, 1 << 50]) if long_texts else 0,
        sequence=(1 << 60) if long_texts else 0,
        never=frozenset(choose(_QUIET)),
        options=Options(
            order=choose(["tail", "in-place"]),
            limits=ConsumerLimits(
                max_in_work=choose([3, 12, 12] if long_texts else [1, 3, 12]),
                lock_timeout=choose([None, LOCK_TIME]),
                max_deliveries=choose([None, None, 2]),
                durable_counts=choose([False, False, True]),
            ),
            text_limit=text_limit,
            ahead=choose([False, False, True]),
            dead_letters=(letters := choose([False, True])),
            ends_known=choose([True, True, False]),
            partition_count=(1 << 31) - 1 if long_texts else 1,
            ttl=choose([None, None, Ttl(), Ttl(default=4)]),
            max_delay=choose([None, None, 4.0]),
            earlier=choose([(), (), (), _earlier(choose)]),
            expiry_topic=letters,
            groups=choose([None, None, Groups(), Groups(mode="shared")]),
            ring=choose([None, None, None, None, 1, 2, 5]),
        ),
    )


def _earlier(choose: Choose) -> tuple[EarlierTerms, ...]:
    """Return the terms of a queue that is altered early in a history, twice or once."""
    terms = [
        EarlierTerms(until=until, ttl=choose([None, Ttl(), Ttl(default=2)]), max_delay=choose([None, None, 2.0, 6.0]))
        for until in choose([(3000,), (6000,), (2000, 7000)])
    ]
    return tuple(terms)


def by_rank(setting: Setting) -> Setting:
    """Rank messages."""
    return replace(setting, options=replace(setting.options, order="tail", ranked=True))


def far_ahead(setting: Setting) -> Setting:
    """Schedule and delay messages for longer than a history lasts."""
    return replace(setting, options=replace(setting.options, max_delay=FAR_AHEAD, earlier=()))


def walk(world: World, random: Random, steps: int) -> None:
    """Do a number of random steps, then finish the world."""
    for _ in range(steps):
        world.act(random.choices(_NAMES, cum_weights=_BOUNDS)[0], random.randrange(8), random.randrange(64))
    world.finish(random.randrange(8), random.randrange(8))


def walks(seeds: Iterable[int], steps: int) -> Counter[str]:
    """Walk through a new world for each seed; return the counts of all of them.

    Raises:
        Violation: an invariant is broken. A note has the setting and the shortest script found, for `replay`.
    """
    counts: Counter[str] = Counter()
    for seed in seeds:
        random = Random(seed)
        setting = any_setting(random.choice)
        if seed % 5 == 0:
            setting = by_rank(setting)
        if seed % 4 == 0:
            setting = far_ahead(setting)
        world = World(setting)
        try:
            walk(world, random, steps)
        except Exception as error:
            script = minimised(setting, world.script)
            error.add_note(f"seed {seed}, {steps} steps\n{setting}\n" + "\n".join(map(repr, map(tuple, script))))
            raise
        counts += world.counts
    return counts


def replay(setting: Setting, script: Sequence[Step]) -> World:
    """Run a script."""
    world = World(setting)
    for action, who, how in script:
        if action == "finish":
            world.finish(who, how)
        else:
            world.act(action, who, how)
    return world


def minimised(setting: Setting, script: Sequence[Step]) -> list[Step]:
    """Return a script made shorter by leaving steps out, which still breaks the same invariant or fails alike."""
    invariant = _broken_by(setting, script)
    shortest = list(script)
    size = len(shortest)
    while size:
        at = len(shortest) - size
        while at >= 0:
            shorter = shortest[:at] + shortest[at + size :]
            if _broken_by(setting, shorter) == invariant:
                shortest = shorter
            at -= size
        size //= 2
    return shortest


def _broken_by(setting: Setting, script: Sequence[Step]) -> str | None:
    try:
        replay(setting, script)
    except Violation as violation:
        return violation.invariant
    except Exception as error:  # noqa: BLE001  # the core itself failed, which is a finding, too
        return type(error).__name__
    return None
