package web

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strconv"

	"github.com/arbe-dev/arbe/web/transcript"
)

// The paths of the app. Ids are escaped only here, so that each id is escaped exactly once.

func devicePath(code string) string { return "/login/device?code=" + url.QueryEscape(code) }

func threadPath(id string) string             { return "/threads/" + url.PathEscape(id) }
func exportPath(thread, format string) string { return threadPath(thread) + "/export?format=" + format }
func housePath(id string) string              { return "/houses/" + url.PathEscape(id) }

// entryPath returns the path of the entry at a position of a log. The fragment marks the entry. The query is for browsers
// without the script, because a server never sees the fragment.
func entryPath(thread string, seq int64) string {
	n := decimal(seq)
	return threadPath(thread) + "?at=" + n + "#e" + n
}

// stopPath stops what runs in a thread.
func stopPath(thread string) string { return threadPath(thread) + "/stop" }

func cancelPath(thread, command string) string {
	return threadPath(thread) + "/commands/" + url.PathEscape(command) + "/cancel"
}

func olderPath(thread string, before int64) string {
	return threadPath(thread) + "/entries?before=" + decimal(before)
}

func newerPath(thread string, after int64) string {
	return threadPath(thread) + "/entries?after=" + decimal(after)
}

func wholePath(thread string, seq int64) string {
	return threadPath(thread) + "/entries/" + decimal(seq)
}

// terminalPath returns the path of the page of a thread's terminals, or of the terminal of a command.
func terminalPath(thread, command string) string {
	if command == "" {
		return threadPath(thread) + "/terminal"
	}
	return threadPath(thread) + "/terminal?command=" + url.QueryEscape(command)
}

// ttyPath returns the path below which a page follows the terminal of a command and types into it.
func ttyPath(thread, command string) string {
	return threadPath(thread) + "/terminal/" + url.PathEscape(command)
}

func artifactsPath(thread string) string { return threadPath(thread) + "/artifacts" }

// pagePath returns the path of a page of a list by its token.
func pagePath(list, token string) string {
	if token == "" {
		return list
	}
	return list + "?page=" + url.QueryEscape(token)
}

func memberPath(house, agent string) string {
	return settingsPath(house, "members") + "/" + url.PathEscape(agent)
}

func botPath(house, bot string) string {
	return settingsPath(house, "bots") + "/" + url.PathEscape(bot)
}

func sandboxPath(id string) string { return "/sandboxes/" + url.PathEscape(id) }

func environmentPath(id string) string { return "/environments/" + url.PathEscape(id) }

// approvalKey returns the id of the element in which a request for approval is answered.
func approvalKey(id string) string { return "ask-" + url.PathEscape(id) }

// hostKey returns the class of the elements that say whether an environment allows a host. It is a class because several
// entries may be about one host.
func hostKey(environment, host string) string {
	sum := sha256.Sum256([]byte(environment + " " + host))
	return "host-" + hex.EncodeToString(sum[:8])
}

// approvalPath returns the path that takes the answer to a request.
func approvalPath(v transcript.ApprovalAnswer) string {
	return threadPath(v.Thread) + "/approvals/" + url.PathEscape(v.ID)
}

// artifactPath returns the path from which a browser downloads an artifact's bytes. Another handler serves it. That handler
// accepts the same session, and makes browsers save the bytes, because untrusted bytes must not run as a page of this app.
func artifactPath(id string) string { return "/api/artifact/" + url.PathEscape(id) }

// imagePath returns the path from which a browser gets an image artifact to show it. Every other path serves it as a download.
func imagePath(id string) string { return artifactPath(id) + "/image" }

// changesPath returns the path of an artifact that is a patch.
func changesPath(artifact string) string { return "/changes/" + url.PathEscape(artifact) }

// spendingPath returns the path of the cost limits of a house's bots.
func spendingPath(house string) string { return settingsPath(house, "bots") + "#spending" }

// recipePath returns the path of the page on which people change the recipe of a command's sandbox.
func recipePath(c transcript.Command) string {
	if c.Environment == "" {
		return settingsPath(c.House, "environments")
	}
	return environmentPath(c.Environment)
}

func settingsPath(house, page string) string { return housePath(house) + "/" + page }

func nextID(seq int64) string { return "next-" + strconv.FormatInt(seq, 10) }

// runPath returns the path of an action on the run of a thread's coding agent.
func runPath(thread, act string) string { return threadPath(thread) + "/run/" + act }

func turnPath(thread, turn, act string) string {
	return threadPath(thread) + "/turns/" + url.PathEscape(turn) + "/" + act
}
