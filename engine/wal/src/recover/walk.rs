//! The walk through a log's groups.

use std::collections::BTreeSet;

use super::*;
use crate::disk::DiskFile;

/// The state of one recovery.
pub(super) struct Walk<'a, F> {
    opts: &'a LogOptions,
    segments: Vec<Segment<F>>,
    from: Lsn,
    visitor: &'a mut dyn Visitor,
    /// `prev_end` by incarnation.
    ends: BTreeMap<u64, u64>,
    /// The LSN that has to follow, once the log's start is known.
    expected: Option<u64>,
    /// Where the group that has to follow starts, unless it is in the next segment.
    next: Position,
    /// LSN of the last record, or where earlier openings say that the log ended.
    end: u64,
    /// Highest LSN in any good group, void or not.
    highest_lsn: u64,
    relaxed: bool,
    accepted: BTreeMap<SegmentId, SegmentSummary>,
    recovered: Recovered,
}

/// Index of a segment and an offset in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    segment: usize,
    offset: u64,
}

/// Whether the walk goes on with what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Ignore,
    EndIncarnation,
    EndLog,
}

/// What lies behind a hole.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    groups: u64,
    durable_lsn: u64,
    last_lsn: u64,
}

/// Whether this is how a file looks where its segment has written nothing.
fn is_unwritten(fault: &GroupFault) -> bool {
    matches!(fault, GroupFault::Magic | GroupFault::Segment(_))
}

impl<'a, F: DiskFile> Walk<'a, F> {
    pub(super) fn new(
        opts: &'a LogOptions,
        mut segments: Vec<Segment<F>>,
        from: Lsn,
        visitor: &'a mut dyn Visitor,
    ) -> Self {
        let mut free = BTreeSet::new();
        let heads = || {
            segments
                .iter()
                .filter_map(|s| s.head.map(|found| found.header))
        };
        let start = heads()
            .map(|header| header.start_segment)
            .max()
            .unwrap_or(0);
        let ends = heads()
            .map(|header| (header.incarnation, header.prev_end))
            .collect();
        let incarnation = heads().map(|header| header.incarnation).max().unwrap_or(0);
        free.extend(
            segments
                .iter()
                .map(|s| s.reader.id)
                .filter(|id| id.0 < start),
        );
        segments.retain(|segment| segment.reader.id.0 >= start);
        Walk {
            opts,
            segments,
            from,
            visitor,
            ends,
            expected: None,
            next: Position::default(),
            end: 0,
            highest_lsn: 0,
            relaxed: false,
            accepted: BTreeMap::new(),
            recovered: Recovered {
                first_lsn: Lsn::ZERO,
                last_lsn: Lsn::ZERO,
                records: 0,
                segments: Vec::new(),
                published: Vec::new(),
                free: free.into_iter().collect(),
                wall_clock_ms: 0,
                incarnation,
                torn: None,
                damage: Vec::new(),
                unfinished: Vec::new(),
                unused: Vec::new(),
                continues_at: Lsn::ZERO,
                next_lsn: Lsn::ZERO,
                next_segment: SegmentId(1),
                groups: BTreeMap::new(),
            },
        }
    }

    pub(super) async fn run(&mut self) -> Result<(), WalError> {
        let mut first = 0;
        while first < self.segments.len() {
            let Some(head) = self.segment(first).head else {
                first += 1;
                continue;
            };
            let incarnation = head.header.incarnation;
            let same = |s: &Segment<F>| s.head.is_none_or(|h| h.header.incarnation == incarnation);
            let ahead = self.segments.iter().skip(first);
            let count = ahead.take_while(|s| same(s)).count();
            let verdict = self.incarnation(first, first + count, head).await?;
            if verdict == Verdict::EndLog {
                break;
            }
            first += count;
        }
        if self.expected.is_none() {
            self.check_heads().await?;
        }
        Ok(())
    }

    /// No group is good. A log that never had one has no bad one either: its first one fills no more than a sector. And
    /// the oldest live segment begins with a durable group, so that nothing here is torn.
    async fn check_heads(&mut self) -> Result<(), WalError> {
        for segment in 0..self.segments.len() {
            if let Err(fault) = self.reader(segment).group_at(0).await?
                && !is_unwritten(&fault)
            {
                self.damaged(Position { segment, offset: 0 }, fault)?;
            }
            self.reader(segment).forget();
        }
        Ok(())
    }

    /// Every segment's predecessor is there, unless it was given back.
    pub(super) fn check_chain(&self) -> Result<(), WalError> {
        let mut seen_any = false;
        for segment in &self.segments {
            let Some(head) = segment.head else { continue };
            if head.header.first_lsn > self.limit(head.header.incarnation) {
                continue;
            }
            let prev = SegmentId(head.header.prev_segment);
            let found = self.segments.iter().find(|s| s.reader.id == prev);
            let oldest = self.segments.first();
            let is_later = oldest.is_some_and(|oldest| oldest.reader.id < prev);
            if found.is_none() && seen_any && is_later {
                let (file, next) = (prev.file_name(), segment.reader.id.file_name());
                return Err(WalError::MissingSegment { file, next });
            }
            if !seen_any && found.is_some_and(|s| s.head.is_none()) {
                let fault = GroupFault::Missing;
                return Err(Damage {
                    segment: prev,
                    offset: 0,
                    lsn: Lsn::ZERO,
                    fault,
                }
                .into());
            }
            seen_any = true;
        }
        Ok(())
    }

    /// Last LSN of `incarnation` that is not void.
    fn limit(&self, incarnation: u64) -> u64 {
        if self.opts.planted(Bug::ForgetEnd) {
            return u64::MAX;
        }
        self.ends
            .range(incarnation + 1..)
            .map(|(_, end)| *end)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Whether a later opening has found no record of this incarnation, so that there is none.
    fn is_void(&self, found: &Found) -> bool {
        found.header.incarnation_first > self.limit(found.header.incarnation)
    }

    /// Walks the segments `first..end`, which are all of one incarnation or have no good group.
    async fn incarnation(
        &mut self,
        first: usize,
        end: usize,
        head: Found,
    ) -> Result<Verdict, WalError> {
        if self.is_void(&head) {
            return Ok(Verdict::EndIncarnation);
        }
        let limit = self.limit(head.header.incarnation);
        if self.enter(first, &head).await? == Verdict::EndLog {
            return Ok(Verdict::EndLog);
        }
        for segment in first..end {
            let mut offset = 0;
            while let Some(found) = self.reader(segment).next_group(offset).await? {
                let here = Position {
                    segment,
                    offset: found.offset,
                };
                match self.judge(here, &found, end, limit).await? {
                    Verdict::Accept => self.accept(segment, &found)?,
                    Verdict::Ignore => {}
                    verdict => {
                        self.reader(segment).forget();
                        return Ok(verdict);
                    }
                }
                offset = found.end();
            }
            self.reader(segment).forget();
        }
        let expected = self.expected();
        if limit != u64::MAX && expected <= limit {
            self.damaged(self.next, GroupFault::Missing)?;
            self.expected = Some(limit + 1);
            if self.opts.on_damage == OnDamage::Cut {
                self.expected = Some(expected);
                self.note_rest(Position {
                    segment: end,
                    offset: 0,
                })
                .await?;
                return Ok(Verdict::EndLog);
            }
        }
        if limit == u64::MAX {
            self.note_partial(end).await?;
        }
        Ok(Verdict::EndIncarnation)
    }

    /// Checks where the incarnation starts and sets what is expected there.
    async fn enter(&mut self, first: usize, head: &Found) -> Result<Verdict, WalError> {
        let header = &head.header;
        let here = Position {
            segment: first,
            offset: 0,
        };
        let opens = self.segment(first).reader.id.0 == header.incarnation;
        if self.expected.is_none() {
            let available = if opens {
                header.prev_end + 1
            } else {
                header.first_lsn
            };
            if self.from.0 > 0 && self.from.0 < available {
                let available = Lsn(available);
                return Err(WalError::MissingRecords {
                    wanted: self.from,
                    available,
                });
            }
        }
        self.next = here;
        let first_known = self.expected.is_none() && !opens && head.offset == 0;
        let start = if first_known {
            header.first_lsn
        } else {
            header.incarnation_first
        };
        if self.expected.is_none() {
            self.end = if opens { header.prev_end } else { start - 1 };
        }
        let before = *self.expected.get_or_insert(start);
        let fault = if before > start {
            Some(GroupFault::Order("incarnation"))
        } else if first_known || (opens && head.offset == 0 && header.is_opening()) {
            None
        } else {
            // Any good group proves that the opening was durable, and the oldest live segment
            // begins with a durable group.
            Some(GroupFault::Missing)
        };
        if let Some(fault) = fault {
            self.damaged(here, fault)?;
            if self.opts.on_damage == OnDamage::Cut {
                self.note_rest(here).await?;
                return Ok(Verdict::EndLog);
            }
        }
        self.expected = Some(start);
        self.relaxed = header.flags & FLAG_RELAXED != 0;
        Ok(Verdict::Accept)
    }

    async fn judge(
        &mut self,
        here: Position,
        found: &Found,
        end: usize,
        limit: u64,
    ) -> Result<Verdict, WalError> {
        let header = &found.header;
        let expected = self.expected();
        if header.first_lsn > limit && expected > limit {
            return Ok(Verdict::EndIncarnation);
        }
        let in_place = here == self.next || (here.offset == 0 && here.segment > self.next.segment);
        if in_place && header.first_lsn == expected || self.opts.planted(Bug::JumpHoles) {
            // Whoever opens a log may set its clock back.
            let goes_back = header.wall_clock_ms < self.recovered.wall_clock_ms;
            if goes_back && !header.is_opening() {
                self.damaged(here, GroupFault::Order("wall clock"))?;
            }
            return Ok(Verdict::Accept);
        }
        if header.first_lsn < expected {
            self.damaged(here, GroupFault::Order("LSN"))?;
        } else {
            let behind = self.behind(here, end).await?;
            if limit == u64::MAX && behind.durable_lsn < expected {
                self.torn(self.next, behind);
                return Ok(Verdict::EndLog);
            }
            let fault = self.fault_at(self.next).await?;
            self.damaged(self.next, fault)?;
        }
        match self.opts.on_damage {
            OnDamage::Cut => {
                self.note_rest(here).await?;
                Ok(Verdict::EndLog)
            }
            _ if header.first_lsn < expected => Ok(Verdict::Ignore),
            _ => {
                // Looking ahead has moved the reader.
                let again = self.reader(here.segment).group_at(here.offset).await?;
                Ok(if again.is_ok() {
                    Verdict::Accept
                } else {
                    Verdict::Ignore
                })
            }
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "segments go by their index here, and none is removed"
    )]
    fn segment(&self, index: usize) -> &Segment<F> {
        &self.segments[index]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "segments go by their index here, and none is removed"
    )]
    fn reader(&mut self, index: usize) -> &mut SegmentReader<F> {
        &mut self.segments[index].reader
    }

    /// The LSN that has to follow.
    #[expect(
        clippy::expect_used,
        reason = "no group is judged before its incarnation is entered"
    )]
    fn expected(&self) -> u64 {
        self.expected.expect("entered")
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "segments go by their index here, and none is removed"
    )]
    fn accept(&mut self, segment: usize, found: &Found) -> Result<(), WalError> {
        let reader = &self.segments[segment].reader;
        let header = &found.header;
        let Some(group) = reader.group(found) else {
            let (file, bytes) = (reader.id.file_name(), "shrinks while it is read");
            let source = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, bytes);
            return Err(WalError::io("read", file)(source));
        };
        let records = || group.records().skip_while(|(lsn, _)| *lsn < self.from);
        let mut ahead = records();
        let visitor = &mut *self.visitor;
        for (lsn, record) in ahead.by_ref().take(AHEAD_RECORDS) {
            visitor.ahead(lsn, record);
        }
        for (lsn, record) in records() {
            if let Some((lsn, record)) = ahead.next() {
                visitor.ahead(lsn, record);
            }
            visitor
                .visit(lsn, record)
                .map_err(|source| WalError::Visit { lsn, source })?;
            self.recovered.records += 1;
        }
        let (first_lsn, last_lsn) = (Lsn(header.first_lsn), header.last_lsn());
        let summary = SegmentSummary {
            id: reader.id,
            bytes: reader.bytes,
            first_lsn,
            last_lsn,
        };
        self.accepted.entry(reader.id).or_insert(summary).last_lsn = last_lsn;
        if header.record_count > 0 {
            self.end = last_lsn.0;
        }
        *self.recovered.groups.entry(reader.id).or_default() += 1;
        self.recovered.wall_clock_ms = header.wall_clock_ms;
        self.highest_lsn = self.highest_lsn.max(header.last_lsn().0);
        self.expected = Some(header.last_lsn().0 + 1);
        self.next = Position {
            segment,
            offset: found.end(),
        };
        Ok(())
    }

    fn damaged(&mut self, at: Position, fault: GroupFault) -> Result<(), WalError> {
        let segment = self.segment(at.segment).reader.id;
        let lsn = Lsn(self.expected.unwrap_or(0));
        let damage = Damage {
            segment,
            offset: at.offset,
            lsn,
            fault,
        };
        if self.opts.on_damage == OnDamage::Refuse {
            return Err(damage.into());
        }
        self.recovered.damage.push(damage);
        Ok(())
    }

    fn torn(&mut self, at: Position, behind: Behind) {
        self.highest_lsn = self.highest_lsn.max(behind.last_lsn);
        self.recovered.torn = Some(Torn {
            segment: self.segment(at.segment).reader.id,
            offset: at.offset,
            lsn: Lsn(self.expected()),
            groups_discarded: behind.groups,
        });
    }

    /// What the good groups from `here` on say, up to segment `end`.
    async fn behind(&mut self, here: Position, end: usize) -> Result<Behind, WalError> {
        let mut behind = Behind::default();
        let mut offset = here.offset;
        let from_here = self.segments.iter_mut().take(end).skip(here.segment);
        for segment in from_here {
            while let Some(found) = segment.reader.next_group(offset).await? {
                behind.groups += 1;
                behind.durable_lsn = behind.durable_lsn.max(found.header.durable_lsn);
                behind.last_lsn = behind.last_lsn.max(found.header.last_lsn().0);
                offset = found.end();
            }
            offset = 0;
        }
        Ok(behind)
    }

    /// Counts in the LSNs of everything that is cut.
    async fn note_rest(&mut self, here: Position) -> Result<(), WalError> {
        let rest = self.behind(here, self.segments.len()).await?;
        self.highest_lsn = self.highest_lsn.max(rest.last_lsn);
        Ok(())
    }

    /// Notes a group at the very end that was written in part.
    async fn note_partial(&mut self, end: usize) -> Result<(), WalError> {
        let (next, mut offset) = (self.next, self.next.offset);
        for segment in next.segment..end {
            let reader = self.reader(segment);
            if offset < reader.bytes
                && let Err(fault) = reader.group_at(offset).await?
                && !is_unwritten(&fault)
            {
                self.torn(Position { segment, offset }, Behind::default());
                return Ok(());
            }
            offset = 0;
        }
        Ok(())
    }

    async fn fault_at(&mut self, at: Position) -> Result<GroupFault, WalError> {
        let reader = self.reader(at.segment);
        if at.offset >= reader.bytes {
            return Ok(GroupFault::Missing);
        }
        Ok(reader
            .group_at(at.offset)
            .await?
            .err()
            .unwrap_or(GroupFault::Missing))
    }

    pub(super) fn finish(mut self) -> Result<Recovered, WalError> {
        let mut recovered = self.recovered;
        let unused = self.segments.iter().filter(|s| s.head.is_none());
        recovered.unused = unused.map(|s| s.reader.id).collect();
        let Some(expected) = self.expected else {
            if self.from.0 > 1 {
                let available = Lsn::ZERO.next();
                return Err(WalError::MissingRecords {
                    wanted: self.from,
                    available,
                });
            }
            recovered
                .free
                .extend(self.segments.iter().map(|s| s.reader.id));
            recovered.next_lsn = Lsn::ZERO.next();
            recovered.first_lsn = Lsn::ZERO.next();
            return Ok(recovered);
        };
        recovered.last_lsn = Lsn(self.end);
        recovered.continues_at = Lsn(expected);
        let gap = if self.relaxed { RELAXED_LSN_GAP } else { 0 };
        recovered.next_lsn = Lsn(expected.max(self.highest_lsn + 1) + gap);
        if self.opts.planted(Bug::ForgetEnd) {
            recovered.next_lsn = Lsn(expected);
        }
        // The end does not depend on what holds no record and precedes none.
        let needed = |s: &SegmentSummary| s.first_lsn <= s.last_lsn;
        while self
            .accepted
            .last_entry()
            .is_some_and(|last| !needed(last.get()))
        {
            self.accepted.pop_last();
        }
        let unused = self.segments.iter().map(|s| s.reader.id);
        recovered
            .free
            .extend(unused.filter(|id| !self.accepted.contains_key(id)));
        recovered
            .unused
            .retain(|id| !self.accepted.contains_key(id));
        recovered.segments = self.accepted.into_values().collect();
        recovered.first_lsn = recovered
            .segments
            .first()
            .map_or(recovered.last_lsn.next(), |s| s.first_lsn);
        Ok(recovered)
    }
}
