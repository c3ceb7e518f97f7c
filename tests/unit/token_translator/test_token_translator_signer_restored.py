"""A ledger that was restored from a backup, and one that forgets."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete

from headgate.settings import SettingsError
from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued, refused
from token_translator.signer import copied, live, restore, retention, revocations, search
from token_translator.signer.copied import Copied
from token_translator.signer.entries import ChainError, Entry, Head
from token_translator.signer.ledger import DeclinedError, Ledger, RestoredError
from token_translator.signer.position import Position, encode
from token_translator.signer.revocations import KEPT_LONGER, Wanted, orderer
from token_translator.signer.syslog import message
from token_translator.signer.tables import LEDGER, REVOKED_SERIALS

ROOT = orderer("local:root")
LONGEST = timedelta(days=30)


def go_back(books: Books, entries: int) -> None:
    """The database as it was with so many entries: yesterday's backup."""
    with books.engine.begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq > entries))
        connection.execute(delete(REVOKED_SERIALS).where(REVOKED_SERIALS.c.seq > entries))


def elsewhere(books: Books) -> Ledger:
    """The same ledger, open on a host that never saw what was lost."""
    return Ledger(engine=books.engine, persons=books.persons)


def kept(entries: Sequence[Entry]) -> Copied:
    """What a syslog server has of them, read from its file."""
    lines = [
        b"2026-11-21T12:00:00+00:00 host " + message(entry, facility=10, host="ca1", process=7)
        for entry in entries
    ]
    return copied.read([b"some other line", *lines, b'{"not": "ours"}', b"{broken"])


def lost(books: Books, copy: Sequence[Entry] = (), serial: int = 0) -> restore.Lost:
    """What is known of what is gone."""
    return restore.Lost(books.position.read(), serial, kept(copy))


def reconcile(books: Books, known: restore.Lost) -> restore.Reconciled:
    """Make it whole again."""
    return restore.reconcile(books.ledger(), books.persons, known, by=ROOT, now=NOW)


def test_a_restore_is_noticed(books: Books) -> None:
    """A ledger that ends before what this host wrote is refused, with the command that mends it."""
    books.ledger().append([issued(), issued()], NOW)
    books.ledger().require_whole()
    go_back(books, 1)
    with pytest.raises(SettingsError, match=r"ends at entry 1, serial 1.*reconcile"):
        books.ledger().require_whole()


def test_a_restore_that_was_written_since_is_noticed(books: Books) -> None:
    """A ledger that has another entry where this host wrote one is refused."""
    books.ledger().append([issued(), issued()], NOW)
    remembered = books.position.read()
    go_back(books, 1)
    elsewhere(books).append([issued(BOB), issued(BOB)], NOW)
    assert books.position.read() == remembered
    with pytest.raises(SettingsError, match=r"entry 2 .* is not the one"):
        books.ledger().require_whole()


def test_a_restore_is_noticed_while_signing(books: Books) -> None:
    """A ledger put back under the one that writes takes nothing more until it is reconciled."""
    ledger = books.ledger()
    ledger.append([issued(), issued(), issued()], NOW)
    remembered = books.position.read()
    go_back(books, 1)
    for _ in range(2):
        with pytest.raises(RestoredError, match=r"ends at entry 1, serial 1.*reconcile"):
            ledger.append([issued(), issued(), issued()], NOW)
    assert (ledger.head().seq, books.position.read()) == (1, remembered)
    assert reconcile(books, lost(books)).revoked == ((1, 4),)
    assert ledger.append([issued()], NOW)[0].serial == 5


def test_a_fork_is_noticed_while_signing(books: Books) -> None:
    """So is one that another host wrote further since, even beyond what was lost."""
    ledger = books.ledger()
    ledger.append([issued(), issued()], NOW)
    go_back(books, 1)
    elsewhere(books).append([issued(BOB), issued(BOB)], NOW)
    with pytest.raises(RestoredError, match=r"entry 2 .* is not the one"):
        ledger.append([issued()], NOW)
    assert ledger.head().seq == 3


def test_others_write_the_same_ledger(books: Books) -> None:
    """What another signer or a command appended in between is no restore."""
    ledger = books.ledger()
    for serial in (1, 3):
        assert ledger.append([issued()], NOW)[0].serial == serial
        assert elsewhere(books).append([issued(BOB)], NOW)[0].serial == serial + 1
    remembered = books.position.read()
    assert remembered.seq == 3
    books.position.write(Head(2, "a" * 64, 2))
    assert books.position.read() == remembered


def test_lost_serials_are_revoked_and_never_given_again(books: Books) -> None:
    """Without a copy all that was ever issued is revoked for a certificate's life."""
    books.ledger().append([issued(), issued(BOB), issued(), refused()], NOW)
    go_back(books, 1)
    done = reconcile(books, lost(books))
    assert (done.put_back, done.revoked) == (0, ((1, 4),))
    books.ledger().require_whole()
    (entry,) = books.ledger().append([issued()], NOW)
    assert entry.serial == 5  # behind 3, and the one that the restored entry takes
    assert books.ledger().verify().serial == 5
    assert live.revoked(books.ledger(), NOW).serials == ((1, 4),)
    assert live.revoked(books.ledger(), NOW).version == 5
    assert live.revoked(books.ledger(), NOW + LONGEST + KEPT_LONGER).serials == ()


def test_a_serial_seen_elsewhere(books: Books) -> None:
    """Where even the position is old, an administrator says how far serials had come."""
    books.ledger().append([issued()], NOW)
    assert reconcile(books, lost(books, serial=500)).revoked == ((1, 501),)
    assert books.ledger().append([issued()], NOW)[0].serial == 502


def test_a_copy_brings_everything_back(books: Books) -> None:
    """Entries of the copy continue the chain just as they were; nothing is lost, none revoked."""
    entries = books.ledger().append([issued(), issued(BOB), issued()], NOW)
    with books.ledger().writing(NOW) as writing:
        wanted = Wanted(reason="lost laptop", by=ROOT, serials=[2])
        revocations.revoke(writing, books.persons, wanted)
    whole = books.ledger().verify()
    entries = list(books.ledger().entries())
    go_back(books, 1)
    assert live.revoked(elsewhere(books), NOW).serials == ()
    assert reconcile(books, lost(books, entries)) == restore.Reconciled(3, (), whole)
    assert books.ledger().verify() == whole
    assert live.revoked(books.ledger(), NOW).serials == ((2, 2),)
    assert restore.compare(books.ledger(), kept(entries)) == 4


def test_a_copy_with_a_hole(books: Books) -> None:
    """What the copy lost of the end stays lost, and with it whom that had revoked."""
    entries = books.ledger().append([issued(), issued(), issued(), issued()], NOW)
    go_back(books, 1)
    done = reconcile(books, lost(books, [*entries[:2], entries[3]]))
    assert (done.put_back, done.revoked) == (1, ((1, 5),))
    assert books.ledger().append([issued()], NOW)[0].serial == 6


def test_a_copy_with_a_certificate_that_says_host(books: Books) -> None:
    """An entry of the profile host that names no key, as older signers wrote, is put back."""
    strange = issued()
    strange = replace(strange, public={**strange.public, "profile": "host"})
    entries = books.ledger().append([issued(), strange], NOW)
    go_back(books, 1)
    assert reconcile(books, lost(books, entries)).put_back == 1


def test_a_forged_copy(books: Books) -> None:
    """A line that does not continue the chain is not put back."""
    entries = books.ledger().append([issued(), issued()], NOW)
    go_back(books, 1)
    body = entries[1].entry.replace(entries[0].hash.encode(), b"0" * 64)
    forged = copied.read([body])
    known = restore.Lost(books.position.read(), 0, forged)
    assert reconcile(books, known).put_back == 0


def test_a_fork_revokes_everything(books: Books) -> None:
    """Where serials may have been given twice, all that were ever given are revoked."""
    entries = books.ledger().append([issued(), issued(), issued()], NOW)
    go_back(books, 1)
    elsewhere(books).append([issued(BOB)], NOW)
    assert reconcile(books, lost(books, entries)).revoked == ((1, 4),)
    assert books.ledger().append([issued()], NOW)[0].serial == 5
    books.ledger().verify()


def test_persons_that_are_lost(books: Books) -> None:
    """Certificates whose person nobody can name any more are revoked, and noticed before."""
    books.ledger().append([issued(), issued(BOB)], NOW)
    restore.require_persons(books.ledger(), books.persons, NOW)
    person = books.persons.find(BOB)
    assert person is not None
    books.persons.erase([person.person])
    with pytest.raises(SettingsError, match="persons"):
        restore.require_persons(books.ledger(), books.persons, NOW)
    assert reconcile(books, lost(books)).revoked == ((2, 2),)
    restore.require_persons(books.ledger(), books.persons, NOW)


def test_nothing_to_mend(books: Books) -> None:
    """A ledger that is whole is left as it is."""
    books.ledger().append([issued()], NOW)
    head = books.ledger().head()
    assert reconcile(books, lost(books)) == restore.Reconciled(0, (), head)


def test_a_copy_that_is_not_the_same(books: Books) -> None:
    """An entry that the copy has otherwise, or that the ledger lacks, is named."""
    entries = books.ledger().append([issued(), issued()], NOW)
    changed = entries[1].entry.replace(b'"kind":"issued"', b'"kind":"Issued"')
    with pytest.raises(ChainError, match="entry 2 is another"):
        restore.compare(books.ledger(), copied.read([changed]))
    go_back(books, 1)
    with pytest.raises(ChainError, match="1 entries more"):
        restore.compare(books.ledger(), kept(entries))


@pytest.mark.parametrize("content", [b"", b"{}", b"x" * 256, b'{"seq":1,"hash":"a","serial":1}'])
def test_a_position_that_is_none(tmp_path: Path, content: bytes) -> None:
    """A file that does not hold a position keeps the signer from starting."""
    (tmp_path / "position").write_bytes(content)
    position = Position(tmp_path / "position")
    with pytest.raises(SettingsError, match="not a position"):
        position.read()
    position.close()


def test_a_position_that_others_can_write(tmp_path: Path) -> None:
    """A link, or a file open to others, is refused."""
    (tmp_path / "position").write_bytes(encode(Head()))
    (tmp_path / "link").symlink_to(tmp_path / "position")
    with pytest.raises(SettingsError):
        Position(tmp_path / "link")
    (tmp_path / "position").chmod(0o666)
    with pytest.raises(SettingsError, match="nobody else"):
        Position(tmp_path / "position")


def retain(books: Books, *, hours: float, sent: int | None = None) -> retention.Removed:
    """Delete what is older than so many hours, a day after `NOW`."""
    later = NOW + timedelta(days=1)
    return retention.retain(
        books.ledger(),
        books.persons,
        before=later - timedelta(hours=hours),
        sent=sent,
        by=ROOT,
        now=later,
    )


def test_old_entries_are_deleted(books: Books) -> None:
    """Only the old beginning goes, its persons with it; the rest still verifies."""
    books.ledger().append([issued(), refused(), issued()], NOW)
    books.ledger().append([issued(BOB)], NOW + timedelta(hours=23))
    gone = retain(books, hours=2)
    assert (gone.entries, gone.persons, gone.through) == (3, 1, 3)
    assert books.ledger().verify().serial == 3
    kept = [json.loads(entry.entry) for entry in books.ledger().entries()]
    assert [(one["seq"], one["kind"]) for one in kept] == [(4, "issued"), (5, "retained")]
    assert books.persons.find(ALICE) is None
    assert books.persons.find(BOB) is not None
    assert books.ledger().append([issued()], NOW)[0].serial == 4


def test_what_is_needed_is_kept(books: Books) -> None:
    """Unexpired certificates, the highest serial and what the copy lacks are not deleted."""
    books.ledger().append([refused(), issued(minutes=3000), issued()], NOW)
    assert retain(books, hours=2).entries == 1
    assert retain(books, hours=2).entries == 0
    books.ledger().verify()


def test_only_what_was_sent_is_deleted(books: Books) -> None:
    """Entries that are not in the copy yet wait for it."""
    books.ledger().append([issued(), issued(), issued()], NOW)
    assert retain(books, hours=2, sent=1).through == 1
    books.ledger().verify()


def test_a_beginning_that_was_taken_away(books: Books) -> None:
    """Entries behind what was removed by the book are missed."""
    books.ledger().append([issued(), issued(), issued(), issued()], NOW)
    retain(books, hours=2, sent=1)
    with books.engine.begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq == 2))
    with pytest.raises(ChainError, match="before it is missing"):
        books.ledger().verify()


def test_killed_while_deleting(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that is stopped in the middle leaves a chain that verifies, and is taken up."""
    books.ledger().append([issued(), issued(), issued(), issued()], NOW)
    later = NOW + timedelta(days=1)
    with books.ledger().writing(later) as writing:
        retention._record(writing, 3, ROOT)
    monkeypatch.setattr(retention, "BATCH", 2)
    assert next(retention._delete(books.ledger(), 3, later)) == 2
    books.ledger().verify()
    assert retain(books, hours=2).entries == 1
    books.ledger().verify()


def test_erasing_a_person(books: Books) -> None:
    """With the key their fields are gone, for good; the entry of it names nobody."""
    books.ledger().append([issued(minutes=-1), issued(BOB)], NOW)
    erase = retention.erase
    assert erase(books.ledger(), books.persons, ALICE, by=ROOT, now=NOW)
    assert not erase(books.ledger(), books.persons, ALICE, by=ROOT, now=NOW)
    found = list(search.search(books.ledger(), books.persons, search.Sought()))
    assert [one["personal"] is None for one in found] == [True, False, False]
    assert found[2]["kind"] == "erased"
    assert found[2]["erased"] == found[0]["person"]
    assert books.ledger().verify().seq == 3


def test_erasing_a_person_with_certificates(books: Books) -> None:
    """Whoever has unexpired certificates is erased only once they are revoked."""
    books.ledger().append([issued()], NOW)
    with pytest.raises(DeclinedError, match="revoke"):
        retention.erase(books.ledger(), books.persons, ALICE, by=ROOT, now=NOW)
    with books.ledger().writing(NOW) as writing:
        wanted = Wanted(reason="left", by=ROOT, identity=ALICE)
        revocations.revoke(writing, books.persons, wanted)
    assert retention.erase(books.ledger(), books.persons, ALICE, by=ROOT, now=NOW)


@pytest.mark.parametrize(
    ("sought", "found"),
    [
        (search.Sought(), [1, 2, 3, 4]),
        (search.Sought(identity=ALICE), [1, 3]),
        (search.Sought(serial=2), [2, 4]),
        (search.Sought(key="SHA256:one"), [1]),
        (search.Sought(row="r-1"), [2]),
        (search.Sought(since=NOW + timedelta(seconds=1)), [4]),
        (search.Sought(until=NOW, identity=BOB), [2]),
        (search.Sought(identity=orderer("local:nobody")), []),
    ],
)
def test_searching(books: Books, sought: search.Sought, found: list[int]) -> None:
    """By user, serial, key, job and time, and by several at once."""
    records = [issued(public_key="SHA256:one"), issued(BOB, row="r-1"), refused()]
    books.ledger().append(records, NOW)
    with books.ledger().writing(NOW + timedelta(seconds=5)) as writing:
        wanted = Wanted(reason="lost laptop", by=ROOT, serials=[2])
        revocations.revoke(writing, books.persons, wanted)
    hits = search.search(books.ledger(), books.persons, sought)
    assert [one["seq"] for one in hits] == found
