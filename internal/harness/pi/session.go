package pi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/harness"
)

// Rebuild writes a session file of version 3 without a directory, because pi would otherwise run its tools there and not
// where it is started.
func (Harness) Rebuild(job harness.Job, messages []entry.PiMessage) ([]harness.File, string, error) {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	if err := to.Encode(object{"type": "session", "version": 3, "id": "arbe", "timestamp": stamp(0)}); err != nil {
		return nil, "", err
	}
	var parent any
	for i, m := range messages {
		id := fmt.Sprintf("%08x", i+1)
		var at int64
		switch p := m.(type) {
		case entry.PiUser:
			at = p.Timestamp
		case entry.PiAssistant:
			at = p.Timestamp
			m = foreign(p)
		case entry.PiToolResult:
			at = p.Timestamp
			if p.Harness != name {
				p.ToolCallID, p.ToolName = harness.CallID(p.ToolCallID), harness.ToolName(p.ToolName)
				m = p
			}
		}
		if err := to.Encode(object{"type": "message", "id": id, "parentId": parent, "timestamp": stamp(at), "message": m}); err != nil {
			return nil, "", err
		}
		parent = id
	}
	return []harness.File{{Path: sessionFile, Content: out.Bytes()}}, sessionFile, nil
}

// foreign adapts another agent's answer for pi: it drops thinking and signatures, which are invalid for pi's provider, and
// the costs, which pi would add up.
func foreign(a entry.PiAssistant) entry.PiAssistant {
	if a.Harness != name {
		kept := make([]entry.PiBlock, 0, len(a.Content))
		for _, b := range a.Content {
			switch b.Type {
			case entry.PiThinkingBlock:
				continue
			case entry.PiCallBlock:
				b.ID, b.Name = harness.CallID(b.ID), harness.ToolName(b.Name)
			}
			b.TextSignature, b.ThoughtSignature = "", ""
			kept = append(kept, b)
		}
		a.Content = kept
	} else {
		a.Provider = provider
	}
	if a.Usage.Cost == nil {
		a.Usage.Cost = &entry.PiCost{}
	}
	return a
}

func stamp(milliseconds int64) string {
	return time.UnixMilli(milliseconds).UTC().Format("2006-01-02T15:04:05.000Z")
}
