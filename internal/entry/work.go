package entry

import (
	"slices"
	"time"
)

// An entry never changes, so that whatever takes time takes several entries: a command and its result, a turn and its
// steps, a question and its answer. Each kind says in its method parts which works its entries belong to, and whether they
// open, update or complete them. Readers pair entries with a [Ledger], or by [Parts], and need not know the kinds.

// Work is something that several entries are about.
type Work struct {
	Kind WorkKind
	ID   string
}

// WorkKind is a kind of work.
type WorkKind int

// The kinds of work.
const (
	// CommandWork is a command. Its id is that of its [Command] entry.
	CommandWork WorkKind = iota
	// TurnWork is a bot's turn, by the id of the turn.
	TurnWork
	// StepWork is one answer of a model. Its id is that of the [PiAssistant] entry, which is all there is of it in the log;
	// deltas with this id come before it.
	StepWork
	// CallWork is a tool call of a step. Its id is that of the entry that has its result, or will have it.
	CallWork
	// ApprovalWork is a request for a person's approval, by the id of the approval.
	ApprovalWork
	// ChatWork is a message and what bots make of it. Its id is that of the [Chat] entry. It is never complete, because any
	// number of bots may answer it.
	ChatWork
	// HostWork is a host that an environment did not allow; see [HostID].
	HostWork
	// RunWork is one run of the coding agent that drives a thread, by its [RunID].
	RunWork
	// ChildWork is what was delegated, by the id of the child thread. It is never complete, because the child may run again.
	ChildWork
)

// Stage is what an entry does to a work.
type Stage int

const (
	// Opens: the work begins with the entry.
	Opens Stage = iota + 1
	// Updates: the work goes on.
	Updates
	// UpdatesOldest: the oldest open work of the kind goes on. The entry does not name it.
	UpdatesOldest
	// Notes: the entry says something about the work, which neither goes on nor ends with it.
	Notes
	// Completes: the work has ended.
	Completes
)

// Part is what an entry does to one work.
type Part struct {
	Work
	Stage Stage
}

// Parts returns what an entry does to the works that it belongs to. It belongs to none if its kind is unknown.
func Parts(e Entry) []Part {
	p, _ := Decode(e)
	return partsOf(e, p)
}

func partsOf(e Entry, p Payload) []Part {
	of, ok := p.(interface{ parts(Entry) []Part })
	if !ok {
		return nil
	}
	return slices.DeleteFunc(of.parts(e), func(part Part) bool { return part.ID == "" && part.Stage != UpdatesOldest })
}

// DoesTo returns what an entry does to a work of a kind; ok is false if it belongs to none.
func DoesTo(e Entry, kind WorkKind) (part Part, ok bool) {
	for _, part := range Parts(e) {
		if part.Kind == kind {
			return part, true
		}
	}
	return Part{}, false
}

// Agents returns the agents that an entry's payload names by their ids. The author is not among them, and ids may be empty.
func Agents(e Entry) []string {
	p, _ := Decode(e)
	return agentsOf(p)
}

func agentsOf(p Payload) []string {
	if names, ok := p.(interface{ agents() []string }); ok {
		return names.agents()
	}
	return nil
}

// Ledger pairs the entries of one log: what it has learned of each work, in whatever order it learned the entries. The zero
// value is ready to use. It is not safe for concurrent use.
type Ledger struct {
	// Brief returns what to remember of a payload; nil remembers all of it.
	Brief func(Payload) Payload

	works map[Work]*Progress
	// placed are the works of the entries that update the oldest one of a kind, by the entries' ids.
	placed map[string]Work
	size   int
}

// Seen is an entry that a ledger has learned.
type Seen struct {
	Seq        int64
	ID, Author string
	Time       time.Time
	Payload    Payload
}

// Agents returns the agents that its payload names, as [Agents] does.
func (s *Seen) Agents() []string { return agentsOf(s.Payload) }

// Progress is what a ledger knows of a work. Its methods also work on nil, of which nothing is known.
type Progress struct {
	opened, completed *Seen
	// first and last are the first and the last entry that is more than a note.
	first, last *Seen
	// latest are the latest entries that update the work, or are notes about it, by type.
	latest map[string]*Seen
}

// Opened returns the entry that opened the work; nil if it is not known.
func (p *Progress) Opened() *Seen {
	if p == nil {
		return nil
	}
	return p.opened
}

// Completed returns the entry that completed the work; nil if it is not known.
func (p *Progress) Completed() *Seen {
	if p == nil {
		return nil
	}
	return p.completed
}

// First and Last return the first and the last known entry of the work that is more than a note; nil if none is known.
func (p *Progress) First() *Seen {
	if p == nil {
		return nil
	}
	return p.first
}

func (p *Progress) Last() *Seen {
	if p == nil {
		return nil
	}
	return p.last
}

// SeenAs returns the payload of an entry as P; ok is false if s is nil or its payload is of another kind.
func SeenAs[P Payload](s *Seen) (payload P, ok bool) {
	if s == nil {
		return payload, false
	}
	payload, ok = s.Payload.(P)
	return payload, ok
}

// Latest returns the latest payload of a kind among those that update a work or are notes about it.
func Latest[P Payload](p *Progress) (payload P, ok bool) {
	if p == nil {
		return payload, false
	}
	return SeenAs[P](p.latest[payload.Type()])
}

// Seen returns the latest entry of a type among those that update the work or are notes about it; nil if there is none.
func (p *Progress) Seen(kind string) *Seen {
	if p == nil {
		return nil
	}
	return p.latest[kind]
}

// perSeen is about how many bytes it takes to remember an entry, besides its payload.
const perSeen = 512

// Learn learns an entry. Learning it again changes nothing.
func (l *Ledger) Learn(e Entry) {
	p, ok := Decode(e)
	if !ok {
		return
	}
	parts := partsOf(e, p)
	if len(parts) == 0 {
		return
	}
	size := perSeen
	if l.Brief == nil {
		size += len(e.Payload)
	} else if brief := l.Brief(p); brief != nil {
		p = brief
	} else {
		size += len(e.Payload)
	}
	seen, isNew := &Seen{e.Seq, e.ID, e.Author, e.Time, p}, false
	for _, part := range parts {
		if part.Stage == UpdatesOldest {
			work, found := l.place(e.ID, part.Kind)
			if !found {
				continue
			}
			part = Part{work, Updates}
		}
		isNew = l.progress(part.Work).add(part.Stage, seen) || isNew
	}
	if isNew {
		l.size += size
	}
}

func (l *Ledger) progress(w Work) *Progress {
	if l.works == nil {
		l.works = map[Work]*Progress{}
	}
	if l.works[w] == nil {
		l.works[w] = &Progress{latest: map[string]*Seen{}}
	}
	return l.works[w]
}

// add adds an entry, and reports whether it is a new one.
func (p *Progress) add(stage Stage, s *Seen) (isNew bool) {
	switch stage {
	case Opens:
		isNew = p.opened == nil
		p.opened = s
	case Completes:
		isNew = p.completed == nil
		p.completed = s
	default:
		was := p.latest[s.Payload.Type()]
		isNew = was == nil || was.Seq < s.Seq
		if isNew {
			p.latest[s.Payload.Type()] = s
		}
	}
	if stage == Notes {
		return isNew
	}
	if p.first == nil || s.Seq < p.first.Seq {
		p.first = s
	}
	if p.last == nil || s.Seq > p.last.Seq {
		p.last = s
	}
	return isNew
}

// place returns the work of an entry that updates the oldest one of a kind, which is the one that was the oldest when the entry
// was learned first.
func (l *Ledger) place(id string, kind WorkKind) (Work, bool) {
	if work, placed := l.placed[id]; placed {
		return work, true
	}
	oldest, open := l.OldestOpen(kind)
	if !open {
		return Work{}, false
	}
	if l.placed == nil {
		l.placed = map[string]Work{}
	}
	l.placed[id] = Work{kind, oldest}
	return l.placed[id], true
}

// Of returns what is known of a work; nil if nothing is.
func (l *Ledger) Of(kind WorkKind, id string) *Progress { return l.works[Work{kind, id}] }

// Placed returns the work that an entry updates without naming it. ok is false if it updates none, or none was open.
func (l *Ledger) Placed(entryID string) (w Work, ok bool) {
	w, ok = l.placed[entryID]
	return w, ok
}

// OldestOpen returns the id of the work of a kind that was opened first and is not completed.
func (l *Ledger) OldestOpen(kind WorkKind) (id string, ok bool) {
	var oldest *Seen
	for w, p := range l.works {
		if w.Kind == kind && p.opened != nil && p.completed == nil && (oldest == nil || p.opened.Seq < oldest.Seq) {
			id, oldest = w.ID, p.opened
		}
	}
	return id, oldest != nil
}

// All returns the ids of the known works of a kind, in no order.
func (l *Ledger) All(kind WorkKind) (ids []string) {
	for w := range l.works {
		if w.Kind == kind {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// Size returns about how many bytes the ledger holds.
func (l *Ledger) Size() int { return l.size }

// Forget forgets everything but the works that keep names.
func (l *Ledger) Forget(keep func(Work, *Progress) bool) {
	for w, p := range l.works {
		if !keep(w, p) {
			delete(l.works, w)
		}
	}
	clear(l.placed)
	l.size = len(l.works) * perSeen
}
