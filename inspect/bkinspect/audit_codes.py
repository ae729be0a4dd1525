"""Codes of findings that need a whole cluster: copies against metadata, metadata against topics.

Rows of `bkinspect.finding.Code`, written as plain tuples because that module builds its table from them. BKC15x and
BKC35x are about one bookie's logs and index against each other, BKC40x copies, BKC41x ledgers, BKC42x placement, BKC43x
what entries say of their ledger, BKC44x ledgers without a writer, BKC45x nodes, BKC50x space.
"""

from __future__ import annotations

from typing import Final

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"

AUDIT_CODES: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    (
        "BKC151",
        ERROR,
        "two records of one entry on one bookie differ",
        "An entry may stand in several logs of a bookie, after a compaction or a replay, but always with the same "
        "payload. Here the payloads differ and the digests fit, so which one a reader gets depends on the index.",
        "compare with the other bookies (bkctl ledger check); re-replicate the ledger from one that agrees with them",
    ),
    (
        "BKC351",
        ERROR,
        "an index points to nothing",
        "The index of a bookie says where an entry lies, and at that place of that log there is another entry, or "
        "none. The bookie answers reads of the entry with an error, and the entry has one copy less.",
        "rebuild the index from the entry logs, or re-replicate the ledger (bkctl audit repair)",
    ),
    (
        "BKC352",
        ERROR,
        "an index points into a log that is gone",
        "The index of a bookie has rows for an entry log that is not in the ledger directory. All entries in it "
        "have one copy less.",
        "look for the file; otherwise re-replicate its ledgers (bkctl audit repair)",
    ),
    (
        "BKC353",
        ERROR,
        "an entry in a log that the index does not know",
        "A log of a bookie holds an entry that belongs on this bookie, but its index has no row for it, and no "
        "journal will replay it. The bookie says that it has no such entry, though its bytes are there.",
        "rebuild the index from the entry logs, or re-replicate the ledger (bkctl audit repair)",
    ),
    (
        "BKC401",
        ERROR,
        "a bookie lacks copies that it should hold",
        "By the ledger's metadata these entries are in the bookie's write set, and the bookie does not have them. "
        "evidence.copies says how many sound copies other bookies hold; with 0 a further loss is not needed: the "
        "entries cannot be read now.",
        "bkctl audit repair copies them from the other bookies",
    ),
    (
        "BKC402",
        ERROR,
        "entries that no bookie has",
        "The ledger counts these entries as written, and none of the bookies of their write sets has a copy. All "
        "of them were looked at. Readers of the ledger stop here.",
        "look for directories of former bookies that still hold the ledger; there is nothing to copy from",
    ),
    (
        "BKC403",
        WARNING,
        "a bookie that ledgers name is not there",
        "Ensembles name a bookie that is not registered and whose directories were not given, so each of their "
        "entries on it has one copy less than its write quorum.",
        "start the bookie; if it is gone for good: bkctl bookie recover, or bkctl audit repair",
    ),
    (
        "BKC404",
        ERROR,
        "copies of one entry differ",
        "Bookies hold copies of the entry with different payload or length, though the digest of each fits. Where "
        "most of them agree the finding names the bookie that does not; where they are even it names none.",
        "read the entry from each bookie and decide; bkctl audit repair replaces a copy that a majority is against",
    ),
    (
        "BKC405",
        ERROR,
        "a bookie gives an entry that is not what its writer sealed",
        "The bookie answered a read with bytes whose digest does not fit. Readers reject them and take another "
        "copy. The audit read from the running bookie, so it cannot say where on its disk they are.",
        "check the bookie's disks (bkctl entrylog verify); bkctl audit repair copies the entry from the others",
    ),
    (
        "BKC406",
        INFO,
        "copies where metadata does not put them",
        "A bookie holds copies of entries in whose write sets it is not. Nothing reads them; they take space. "
        "They stay when a ledger was re-replicated or its ensembles were changed manually, until garbage "
        "collection of over-replicated ledgers removes those of bookies that are in no ensemble of the ledger.",
        "nothing: garbage collection removes them, or they go with the ledger",
    ),
    (
        "BKC411",
        WARNING,
        "a Pulsar ledger that no topic names",
        "The ledger's custom metadata say that it is Pulsar's, it is older than the minimal age, and no topic, "
        "cursor, schema or compacted topic names it. Pulsar leaves such ledgers behind when a broker dies between "
        "two steps.",
        "bkctl ledger owner shows whether its topic exists; bkctl ledger delete, with --owned where the topic exists "
        "and does not list it",
    ),
    (
        "BKC412",
        WARNING,
        "a ledger on disk that has no metadata",
        "Bookies hold a ledger that is not in the metadata store: it was deleted and not yet collected, or its "
        "metadata is lost, or it belongs to another cluster. Garbage collection of a running bookie deletes it.",
        "nothing, if the ledger was deleted; otherwise stop garbage collection and restore its metadata",
    ),
    (
        "BKC413",
        ERROR,
        "a ledger that a topic names is gone",
        "A topic, cursor, schema or DistributedLog stream names a ledger that is not in the metadata store. Loading "
        "the topic, or reading it up to here, fails; of a lost cursor ledger the state in the cursor's node is used, "
        "which is older.",
        "look for it on the bookies (BKC412); restore its metadata, or skip the ledger in the topic",
    ),
    (
        "BKC414",
        ERROR,
        "a ledger of which no bookie has anything",
        "The ledger is closed and has entries, all bookies of its ensembles were looked at, and none has any of them.",
        "look for directories of former bookies that still hold the ledger; otherwise its entries are lost",
    ),
    (
        "BKC415",
        INFO,
        "a ledger without a known owner",
        "No topic, cursor, schema or DistributedLog stream names the ledger, and its custom metadata name no "
        "application. Its writer may keep its id elsewhere, as applications of BookKeeper's own client do, and streams "
        "in a namespace that BKCTL_DISTRIBUTEDLOG_NAMESPACES does not list.",
        "nothing, if an application of this cluster uses BookKeeper directly",
    ),
    (
        "BKC421",
        WARNING,
        "copies on too few racks",
        "All copies of some entries are on bookies of one rack, though the cluster has several: the loss of that "
        "rack takes all copies with it.",
        "bkctl audit repair marks the ledger; a replication worker then moves it as its policy says",
    ),
    (
        "BKC422",
        WARNING,
        "copies in one region",
        "All bookies of an ensemble are in one region, though the cluster has several: while that region "
        "cannot be reached, no client can read the ledger.",
        "bkctl audit repair marks the ledger; a replication worker then moves it as its policy says",
    ),
    (
        "BKC423",
        ERROR,
        "an ensemble names a bookie twice",
        "One bookie stands at two places of an ensemble, so entries whose write set has both have one copy less "
        "than their write quorum.",
        "give one of the places to another bookie",
    ),
    (
        "BKC431",
        ERROR,
        "an entry whose length or last confirmed does not grow",
        "Every entry carries the payload bytes of its ledger up to itself, which is that of the entry before plus "
        "its own, and the writer's last add confirmed, which never falls. All copies of this entry agree and say "
        "otherwise. Offsets that are computed from lengths are wrong from here on.",
        "find out which client wrote the ledger; the payload itself is as it was sealed",
    ),
    (
        "BKC432",
        WARNING,
        "the length in metadata is not that of the last entry",
        "A closed ledger's metadata says how many payload bytes it has; its last entry says it too. They differ.",
        "compare bkctl ledger show with bkctl ledger read --from LAST; readers of entries are not affected",
    ),
    (
        "BKC433",
        ERROR,
        "a closed ledger ends before its last confirmed entry",
        "Bookies hold entries after the ledger's last entry id, and these prove that more was confirmed to the writer "
        "than the metadata say: a copy carries a last confirmed after the end, or the first entry after the end has "
        "as many copies as the ack quorum. Readers stop at the end, so confirmed entries cannot be read, and garbage "
        "collection removes them with the ledger. The ledger was closed at the wrong entry, or old metadata were "
        "restored.",
        "keep the ledger; compare with bkctl ledger show and a backup of its metadata, then restore its last entry id",
    ),
    (
        "BKC441",
        WARNING,
        "an open ledger without a writer",
        "The ledger is open, and no client can be writing it: its topic writes another ledger, a bookie has "
        "it fenced, or every bookie is stopped and the ledger is older than the minimal age. Its end is not "
        "settled, so it can be neither trimmed nor fully repaired.",
        "bkctl ledger recover closes it",
    ),
    (
        "BKC442",
        WARNING,
        "an interrupted recovery",
        "The ledger is IN_RECOVERY for longer than the minimal age: who recovered it died, or too few bookies "
        "answered.",
        "bkctl ledger recover completes it",
    ),
    (
        "BKC451",
        ERROR,
        "the metadata of a ledger cannot be decoded",
        "The ledger's node holds bytes that are no ledger metadata. The ledger cannot be opened, deleted, "
        "repaired or collected, and an auditor of Java stops its check here.",
        "restore the node from a backup, or from ZooKeeper's own logs and snapshots",
    ),
    (
        "BKC452",
        ERROR,
        "a node of a topic, cursor, schema or cookie cannot be decoded",
        "The node holds bytes that are not what belongs there. A topic does not load, a cursor falls back, a "
        "bookie does not start. Ledgers that only it names are not reported as ledgers without an owner.",
        "restore the node from a backup, or from ZooKeeper's own logs and snapshots",
    ),
    (
        "BKC461",
        ERROR,
        "a check of the audit failed",
        "The check raised an error and reported nothing; the other checks of the run finished. What it proves is "
        "not known for this run.",
        "repeat the run with --check NAME and -v; the error is in the evidence",
    ),
    (
        "BKC471",
        ERROR,
        "a bookie's cookie is not in the metadata store",
        "The directories of the bookie hold a cookie, and the metadata store has none of this bookie. A bookie "
        "refuses to start then: its cookie was deleted, as decommissioning does, or the store is another cluster's.",
        "compare the instance ids of directory and cluster; if the cookie was deleted by mistake, restore its node",
    ),
    (
        "BKC472",
        ERROR,
        "the cookie on disk names other directories",
        "The cookie of the bookie's directories and the one in the metadata store differ in their journal, ledger or "
        "index directories. A bookie refuses to start then: a directory is missing, was added, or was moved.",
        "put back the directories that the stored cookie names, or add new ones with the configuration and restart",
    ),
    (
        "BKC473",
        ERROR,
        "the cookie on disk is of another cluster",
        "The instance id in the bookie's directories is not the one in the metadata store: the directories belong to "
        "another cluster, or the cluster was formatted since. A bookie refuses to start then, and its ledgers are "
        "not the ones that the metadata describe.",
        "keep the directories; find the cluster whose instance id they name",
    ),
    (
        "BKC501",
        INFO,
        "more dead than live bytes on a bookie",
        "More than half of the bytes in a bookie's entry logs, and more than a gigabyte, belong to no live ledger "
        "or to superseded copies: compaction is off, suspended, or does not keep up.",
        "bkctl audit sql 'select * from space' shows whose they are; look at the compaction settings of the bookie",
    ),
)
