package export

import (
	"encoding/json"

	"github.com/arbe-dev/arbe/internal/entry"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Decode returns the payload of an entry of the API, with the present text of a message. It reports whether the type is known.
func Decode(e *arbev1.Entry) (entry.Payload, bool) { return entry.Decode(Domain(e)) }

// DoesTo is [entry.DoesTo], for an entry of the API.
func DoesTo(e *arbev1.Entry, kind entry.WorkKind) (entry.Part, bool) {
	return entry.DoesTo(Domain(e), kind)
}

// Domain converts an entry of the API to one of the log. A message has its present text.
func Domain(e *arbev1.Entry) entry.Entry {
	logged := entry.Entry{Seq: e.GetSeq(), ID: e.GetId(), Author: e.GetAuthorAgentId(), Type: e.GetType(), Payload: json.RawMessage(e.GetPayload())}
	switch became := e.GetState(); {
	case became.GetDeleted():
		return entry.Entry{Seq: logged.Seq, ID: logged.ID, Author: logged.Author, Type: logged.Type, Payload: entry.NewDraft("", "", entry.Chat{Text: "(deleted)"}).Payload}
	case became.GetEdits() > 0 || became.GetText() != "":
		return entry.Reworded(logged, became.GetText())
	}
	return logged
}
