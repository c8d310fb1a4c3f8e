"""The summary of a run."""

from __future__ import annotations

from collections import Counter

from tests.torture.ordeal import Report

__all__ = ["summary"]

_SHOWN = 30


def summary(report: Report) -> str:
    """Return what happened, its outcome, and what is wrong."""
    verdict = report.verdict
    lines = [
        f"{report.ordeal.title}, seed {report.ordeal.seed}, {report.seconds:.0f} s",
        f"  {report.sent:>9,}  messages sent to {report.ordeal.keys:,} keys; compaction removed {report.compacted:,}",
        f"  {verdict.delivered:>9,}  deliveries of {verdict.messages:,} messages; {verdict.durable:,} durable acks",
        f"  {report.processes:>9,}  processes; {report.assignments:,} partitions assigned, "
        f"{report.losses:,} lost without notice; all consumed {report.calm:.1f} s after the storm",
    ]
    if report.refused or report.unsure:
        lines.append(f"  {report.refused:>9,}  messages were said not to be stored; {report.unsure:,} may have been")
    if report.memory:
        lines.append(f"  {report.memory >> 20:>9,}  MiB in the largest process")
    if report.ordeal.transactional:
        lines.append(f"  {report.output:>9,}  records in the output, read committed")
    lines += _table("what was done", report.done)
    lines += _table("errors that a new consumer helped against", report.problems)
    lines += _table("how processes consumed", report.habits)
    lines += _table("dead letters", verdict.letters)
    if verdict.waited:
        lines.append(f"  {verdict.waited:>9,}  times one was handed out while another of its order was known to wait")
    if report.ordeal.ring:
        lines.append(
            f"  {verdict.evicted:>9,}  messages were evicted; {verdict.evictions_compared:,} evictions were compared "
            "with what was there"
        )
    if report.ordeal.block:
        lines.append(
            f"  {verdict.blocked:>9,}  sends waited; {verdict.nearly_full:,} keys were added to a queue half full"
        )
    if report.ordeal.grouped:
        lines.append(f"  {verdict.grouped:>9,}  deliveries while the session held another message of the group")
    if report.ordeal.scheduled:
        lines.append(
            f"  {verdict.scheduled:>9,}  deliveries of scheduled messages, and {verdict.beneath:,} of values below one"
        )
    if report.ordeal.definition.ttl is not None:
        lines.append(
            f"  {verdict.expired:>9,}  messages expired and have a letter, and {verdict.expired_again:,} one more; "
            f"{verdict.late:,} were acked after their time; {verdict.sights:,} looks at a view"
        )
    if report.ordeal.paged:
        lines.append(f"  {report.paged:>9,}  times a consumer had values on disk when it was asked for messages")
    lines.append(f"  {verdict.remembered:,} delivery counts had to go on from the one before")
    again = sum(verdict.again.values())
    lines += _table(f"{again:,} deliveries were not the first; {verdict.flagged:,} said so", verdict.again)
    if verdict.handed_over:
        lines.append(f"  {verdict.handed_over:,} of the acked ones lay in partitions that were then given up in order")
    if verdict.overlaps:
        lines.append(
            f"  {verdict.overlaps:,} times the former holder stood still, or was cut off, and did not know yet"
        )
    found = verdict.findings
    lines.append(f"  {len(found):,} findings" if found else "  0 lost, 0 stale, 0 unexplained: all promises hold")
    lines += [f"    {finding}" for finding in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"    … and {len(found) - _SHOWN:,} more")
    return "\n".join(lines)


def _table(title: str, counts: Counter[str]) -> list[str]:
    if not +counts:
        return []
    return [f"  {title}:", *(f"  {count:>9,}    {what}" for what, count in counts.most_common() if count)]
