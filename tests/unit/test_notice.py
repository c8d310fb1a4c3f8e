"""`Notice`: a state that lasts is reported once."""

from __future__ import annotations

from lvq_kafka.runtime.notice import Notice


def test_a_notice_is_due_when_its_state_begins_and_again_only_after_the_state_has_ended() -> None:
    notice = Notice()
    assert (notice.stands, notice.ends()) == (False, False)
    assert [notice.begins(), notice.begins(), notice.stands] == [True, False, True]
    assert [notice.ends(), notice.ends(), notice.stands] == [True, False, False]
    assert notice.begins()
