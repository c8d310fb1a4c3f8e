"""Following the writer of a store from another process (R41)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import closing

from lvq_kafka.core.latest.catch_up import Trouble
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.reported import Report, ReportedCatchUp
from lvq_kafka.core.timing.ttl import NEVER
from lvq_kafka.errors import CatchUpTimeout, StoreFailed, StoreNotFound
from lvq_kafka.reading.catch_up_waiter import CatchUpWaiter
from lvq_kafka.reading.follower import BackgroundReader
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.reading.store_keeper import REPORT, SUBJECT
from lvq_kafka.reading.store_terms import Subject
from lvq_kafka.runtime.clocks import uptime
from lvq_kafka.storing.attached_directory import AttachedDirectory
from lvq_kafka.storing.bell import Ears
from lvq_kafka.storing.change_log import changes_since, next_change
from lvq_kafka.storing.places import boot_id
from lvq_kafka.storing.stored_cut import StoredCut, differing
from lvq_kafka.storing.value_file import MapOutgrown, PinnedPages, ValueFile

__all__ = ["Attachment"]

logger = logging.getLogger("lvq_kafka.store")

_LOOK = 1.0  # seconds between two looks at a writer that does not ring
_SHORTEST = 0.005  # seconds between two moments at which something expires
_PATIENCE = 0.5  # seconds until a waiting caller notices that nobody waits for it

_Changed = tuple[list[bytes], Cause | None]


class Attachment(BackgroundReader):
    """Shows what the writer of a store has committed last, in a thread that the writer wakes.

    Each commit that is seen is a `StoredCut` of its own, so what is shown at any moment is one cut.

    Args:
        path: the directory of the store.
        time: returns seconds since the epoch, by which messages expire.
    """

    def __init__(self, path: str | os.PathLike[str], time: Callable[[], float] = time.time) -> None:
        directory = AttachedDirectory(path)
        self._thread = thread = _AttachedThread(directory, time)
        shared = thread.shared
        super().__init__(
            shared,
            CatchUpWaiter(shared, _WriterAsObserver(shared, directory)),
            prepare=thread.open,
            wake=thread.wake,
            bodies={"attached": thread.run},
        )

    @property
    def subject(self) -> Subject:
        """The queue that the values are of, known once this is open."""
        assert self._thread.subject is not None
        return self._thread.subject


class _WriterAsObserver:
    """Knows the ends of the log from the reports of the writer."""

    def __init__(self, shared: FollowerState, directory: AttachedDirectory) -> None:
        self._shared = shared
        self._directory = directory

    def refresh_now(self) -> None:
        """Do nothing: the writer looks when it does."""

    def ends(
        self, left: Callable[[], float | None] = lambda: None, *, stable: bool = False
    ) -> tuple[str, dict[int, int]]:
        """Return the ends as the writer sees them after this call; see `MetadataThread.ends`.

        Raises:
            CatchUpTimeout: it has not, in time.
        """
        shared, catch_up, then = self._shared, self._shared.catch_up, self._shared.clock()

        def heard() -> bool:
            return catch_up.heard > then

        with shared.lock, shared.notifier.waiting_for(heard):
            while not heard():
                catch_up.check()
                seconds = left()
                if seconds == 0:
                    why = catch_up.trouble or "it looks every `metadata_interval`"
                    raise CatchUpTimeout(
                        f"The writer of the store {self._directory.path} has not looked at the log's end since: {why}.",
                        shortfalls=(),
                        hint="Allow more time, or open the writer with a shorter `metadata_interval`.",
                    )
                shared.notifier.changed.wait(_PATIENCE if seconds is None else min(seconds, _PATIENCE))
            replay = catch_up.replay
            return replay.topic_id, dict(replay.stable if stable else replay.ends)


class _AttachedThread:
    """Looks at the store, and passes on what has changed."""

    def __init__(self, directory: AttachedDirectory, time: Callable[[], float]) -> None:
        self._directory = directory
        path = str(directory.path)
        self._catch_up = ReportedCatchUp(path, uptime(), boot=boot_id())
        self.shared = FollowerState(path, uptime, time=time, timed=True, catch_up=self._catch_up)
        self.subject: Subject | None = None
        self._file: ValueFile
        self._seen = -1  # the last commit that is shown
        self._cut: StoredCut | None = None
        self._ears: Ears | None = None

    def wake(self) -> None:
        """Make the thread look, or end."""
        if self._ears is not None:
            self._ears.wake()

    def open(self) -> None:
        """Show what there is. Raises what `AttachedDirectory.open` raises."""
        self._open_file()
        self._ears = Ears(self._directory.bell, lambda: (self._file.last_commit, self._directory.moved()))
        self._show(self._file.last_commit, self._file.cut())

    def _open_file(self) -> None:
        file = self._directory.open()
        pages = file.cut()
        subject, report = pages.noted(SUBJECT), pages.noted(REPORT)
        if subject is None or report is None:
            raise StoreNotFound(
                f"The store in {self._directory.path} is not complete yet.",
                path=str(self._directory.path),
                hint="Wait until its writer has begun to read.",
            )
        found = Subject.from_note(subject)
        if self.subject not in (None, found):
            raise StoreFailed(
                f"The store {self._directory.path} has other values now: of {found.topic}, by another key header, "
                "order or selection of partitions.",
                path=str(self._directory.path),
                hint="Attach to it again.",
            )
        self.subject, self._file = found, file
        self.shared.topic, self.shared.partitions = found.topic, found.partitions
        self._catch_up.name(found.topic)

    def run(self) -> None:
        """Follow the writer until the reader is closed or has failed: the body of the thread."""
        assert self._ears is not None
        with closing(self._ears) as ears:
            self._follow_writer(ears)

    def _follow_writer(self, ears: Ears) -> None:
        shared = self.shared
        while True:
            ears.wait(self._until_next())
            if shared.over or self._cut is None:
                return
            try:
                self._check()
            except StoreFailed as error:
                if self._catch_up.lose_touch(Trouble.STORE, error):
                    logger.warning(
                        "the store %s cannot be followed, which is tried again: %s", self._directory.path, error
                    )
                    with shared.lock:
                        shared.notifier.notify(everybody=True)
            shared.pass_time_in_steps()

    def _until_next(self) -> float:
        """Return the seconds until something expires, or the writer has to be looked for."""
        with self.shared.lock:
            due, log_time = self._shown.table.next_expiry, self._catch_up.time
        if due >= NEVER or log_time is None:
            return _LOOK
        return min(_LOOK, max(_SHORTEST, (due + 1 - log_time.now) / 1000))

    @property
    def _shown(self) -> StoredCut:
        assert self._cut is not None
        return self._cut

    def _check(self) -> None:
        """Show the last commit, if that is another one."""
        shared = self.shared
        if self._directory.moved() and self._move():
            return
        commit = self._file.last_commit
        if commit != self._seen:
            self._follow(commit)
        else:
            with shared.lock:
                if self._catch_up.listen(shared.clock()):
                    shared.notifier.notify(everybody=True)

    def _move(self) -> bool:
        """Go on with the file that counts now; return whether that is another one."""
        before = self._file
        try:
            self._open_file()
        except StoreNotFound:
            return False
        except StoreFailed as error:
            if error.__cause__ is not None:  # the system refuses now, which may pass
                self._directory.check_again()
                raise
            self.shared.fail(error)
            return True
        if self._file is before:
            return False
        commit, pages = self._file.last_commit, self._file.cut()
        self._show(commit, pages, lambda: self._compared(pages))
        logger.info("the store %s was built again; its new values are shown from now on", self._directory.path)
        return True

    def _follow(self, commit: int) -> None:
        """Show a later commit of the same file."""
        try:
            pages = self._file.cut()
        except MapOutgrown:
            self._follow_growth(commit)
            return
        self._show(commit, pages, lambda: self._logged(pages))

    def _logged(self, pages: PinnedPages) -> Iterable[_Changed]:
        """Return the keys that the writer has changed since the cut that is shown."""
        logged = changes_since(pages, next_change(self._shown.pages))
        return self._compared(pages) if logged is None else logged

    def _compared(self, pages: PinnedPages) -> list[_Changed]:
        """Return the keys whose records differ from those that are shown."""
        return [(list(differing(self._shown, self._made(pages))), None)]

    def _follow_growth(self, commit: int) -> None:
        """Show a later commit in a larger map. All keys count as changed."""
        with self.shared.lock:
            keys = list(self._shown.table.keys("in-place"))
            self._cut = None
            self._catch_up.values = self._catch_up.replay.values = LatestValues()
            try:
                pages = self._file.cut()
            except MapOutgrown as error:
                self.shared.fail(error)
                return
            self._show(commit, pages, lambda: [(keys + list(self._made(pages).table.keys("in-place")), None)])

    def _made(self, pages: PinnedPages) -> StoredCut:
        note, subject = pages.noted(REPORT), self.subject
        assert note is not None
        assert subject is not None
        return StoredCut(pages, Report.from_note(note), subject.key_header)

    def _show(self, commit: int, pages: PinnedPages, changed: Callable[[], Iterable[_Changed]] = tuple) -> None:
        """Show a cut, and pass on what changes with it, if there is anybody to tell."""
        shared, catch_up = self.shared, self._catch_up
        changes = changed() if len(shared.notifier) else None  # without the lock, since this may take long
        cut = self._made(pages)
        with shared.lock:
            if changes is None:  # somebody may have begun to listen since
                changes = changed() if len(shared.notifier) else ()
            known_expired = set() if self._cut is None else set(self._cut.table.hidden)
            before = (catch_up.replay.stage, set(catch_up.troubles), catch_up.starting_over)
            self._cut, self._seen = cut, commit
            catch_up.show(shared.clock(), cut, cut.report)
            for keys, cause in changes:
                if cause == "expired":
                    keys = [key for key in keys if key not in known_expired]
                else:  # they count as news once they have expired
                    known_expired.difference_update(keys)
                shared.notifier.notify(keys, cause=cause)
            cut.table.known_expired = known_expired
            after = (catch_up.replay.stage, set(catch_up.troubles), catch_up.starting_over)
            shared.notifier.notify(everybody=before != after)
