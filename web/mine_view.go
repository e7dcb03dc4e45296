package web

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func mineTopic(f layout) topic { return topic{"mine", f.House.Id, inboxDigest(f.Inbox)} }

// inboxDigest identifies the state of an inbox that a page shows.
func inboxDigest(i *arbev1.Inbox) string {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(i)
	if err != nil {
		return "" // matches no digest, so that all of it is sent
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// needWords say why a thread needs its reader.
var needWords = map[arbev1.NeedReason]string{
	arbev1.NeedReason_NEED_REASON_APPROVAL: "a bot waits for approval", arbev1.NeedReason_NEED_REASON_MENTION: "mentions you",
	arbev1.NeedReason_NEED_REASON_FAILED: "failed", arbev1.NeedReason_NEED_REASON_FINISHED: "finished",
}

// needClasses are the shapes and colours of these reasons.
var needClasses = map[arbev1.NeedReason]string{
	arbev1.NeedReason_NEED_REASON_APPROVAL: "waiting", arbev1.NeedReason_NEED_REASON_MENTION: "mention",
	arbev1.NeedReason_NEED_REASON_FAILED: "failed", arbev1.NeedReason_NEED_REASON_FINISHED: "completed",
}

// needState returns how a need is shown: by its most urgent reason, with the words of all.
func needState(n *arbev1.Need) status {
	s := status{Class: "open"}
	var words []string
	for _, r := range n.Reasons {
		if len(words) == 0 && needClasses[r] != "" {
			s.Class = needClasses[r]
		}
		words = append(words, needWords[r])
	}
	s.Word = strings.Join(words, ", ")
	return s
}

// needPath returns the path of the first entry to read.
func needPath(n *arbev1.Need) string {
	if n.Seq == 0 {
		return threadPath(n.ThreadId)
	}
	return threadPath(n.ThreadId) + "#e" + strconv.FormatInt(n.Seq, 10)
}

func needTitle(n *arbev1.Need) string { return title(&arbev1.Thread{Name: n.ThreadName}) }

// needAgent returns who needs the reader.
func needAgent(n *arbev1.Need) *arbev1.Agent {
	return &arbev1.Agent{Id: n.AgentId, Kind: n.AgentKind, Name: cmp.Or(n.AgentName, formerMember)}
}

// needMark is the value of the buttons of a need: the thread, and up to where to mark it as read.
func needMark(n *arbev1.Need) string {
	return n.ThreadId + ":" + strconv.FormatInt(max(n.Tail, n.Seq), 10)
}

// hasUnread reports whether reading would clear some of the needs. The others wait for approval.
func hasUnread(i *arbev1.Inbox) bool {
	return slices.ContainsFunc(i.GetNeeds(), func(n *arbev1.Need) bool { return n.Seq > 0 })
}

func inboxPath(house string) string { return housePath(house) + "/inbox" }

// counted returns the title of a window with the number of threads that need its reader. The script updates it.
func counted(f layout, name string) string {
	if n := f.Inbox.GetTotal(); n > 0 {
		return "(" + strconv.Itoa(int(n)) + ") " + name
	}
	return name
}

// unreadOf returns the numbers of unread messages by thread, in the form that the script reads. It leaves out muted threads.
func unreadOf(i *arbev1.Inbox) string {
	unread := map[string]int32{}
	for _, r := range i.GetReadings() {
		if r.Unread > 0 && !r.Muted {
			unread[r.ThreadId] = r.Unread
		}
	}
	return jsonText(unread)
}

func mutedOf(i *arbev1.Inbox) string {
	muted := []string{}
	for _, r := range i.GetReadings() {
		if r.Muted {
			muted = append(muted, r.ThreadId)
		}
	}
	return jsonText(muted)
}

// readingOf returns how far the reader has read a thread; nil if the inbox does not say it.
func readingOf(i *arbev1.Inbox, thread string) *arbev1.Reading {
	for _, r := range i.GetReadings() {
		if r.ThreadId == thread {
			return r
		}
	}
	return nil
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(text)
}
