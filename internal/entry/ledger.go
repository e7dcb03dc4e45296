package entry

import (
	"time"
)

// Parts returns the entry's part in each work that it belongs to, or none if its kind is unknown.
func Parts(e Entry) []Part {
	p, _ := Decode(e)
	return partsOf(e, p)
}

// DoesTo returns an entry's part in a work of a kind; ok is false if it belongs to no such work.
func DoesTo(e Entry, kind WorkKind) (part Part, ok bool) {
	for _, part := range Parts(e) {
		if part.Kind == kind {
			return part, true
		}
	}
	return Part{}, false
}

// Agents returns the ids of the agents that an entry's payload names, without the author. Some may be empty.
func Agents(e Entry) []string {
	p, _ := Decode(e)
	return agentsOf(p)
}

// Ledger pairs the entries of one log: it collects those of each work, in whatever order it learns them. The zero value is
// ready to use. It is not safe for concurrent use.
type Ledger struct {
	// Brief returns the part of a payload to remember; nil remembers all of it.
	Brief func(Payload) Payload

	works map[Work]*Progress
	// placed maps the ids of entries that update the oldest work of a kind to that work.
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

// Progress is a ledger's knowledge of a work. Its methods also work on nil, when nothing is known.
type Progress struct {
	opened, completed *Seen
	// first and last are the first and the last entry other than notes.
	first, last *Seen
	// latest holds, by type, the latest entries that update the work or are notes about it.
	latest map[string]*Seen
}

// Opened returns the entry that opened the work; nil if unknown.
func (p *Progress) Opened() *Seen {
	if p == nil {
		return nil
	}
	return p.opened
}

// Completed returns the entry that completed the work; nil if unknown.
func (p *Progress) Completed() *Seen {
	if p == nil {
		return nil
	}
	return p.completed
}

// First and Last return the first and the last known entry of the work, ignoring notes; nil if none is known.
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

// Seen returns the latest entry of a type among those that update the work or are notes about it, or nil if the work has no such entry.
func (p *Progress) Seen(kind string) *Seen {
	if p == nil {
		return nil
	}
	return p.latest[kind]
}

// perSeen is roughly the number of bytes for an entry, besides its payload.
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

// add adds an entry, and reports whether it is new.
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

// place returns the work of an entry that updates the oldest one of a kind: the oldest at the time when the entry was first
// learned.
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

// Of returns the progress of a work; nil if nothing is known.
func (l *Ledger) Of(kind WorkKind, id string) *Progress { return l.works[Work{kind, id}] }

// Placed returns the work that an entry updates without naming it. ok is false if there is none, or none was open.
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

// Size returns the approximate size of the ledger in bytes.
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
