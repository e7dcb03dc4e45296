package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

// habits are words that people type out of habit from other programs, with arbe's verb for each. They are not aliases, so
// that everything has one name.
var habits = []struct{ verb, typed string }{
	{"thread list", "ls, list, threads, ps, top, jobs, tasks, runs, house threads"},
	{"thread create", "new, create, open"},
	{"thread show", "show, info, describe, get, view"},
	{"thread entries read", "read, cat, log, logs, history, thread read, thread log, thread logs, thread history, thread cat"},
	{"thread entries list --follow", "watch, tail, follow, thread watch, thread tail, thread follow"},
	{"thread stop", "stop, kill, abort, thread kill, thread abort"},
	{"thread cancel", "cancel"},
	{"thread fork", "fork, clone, branch"},
	{"thread rename", "rename, mv"},
	{"thread close", "close, archive, thread archive"},
	{"thread delete", "rm, delete, remove"},
	{"thread export", "export, dump"},
	{"thread apply", "apply, patch"},
	{"thread prune", "prune, gc, cleanup"},
	{"thread result", "result, outcome"},
	{"inbox", "unread, mentions"},
	{"notifications", "notification, notify"},
	{"search", "find, grep, thread search, thread find"},
	{"say", "send, post, message, msg, chat, tell, thread say, thread send, thread message, thread reply"},
	{"run", "task, delegate, do, bot run, thread delegate"},
	{"ask", "prompt, question, query, bot ask"},
	{"x", "exec, sh, shell, ssh, bash, thread exec, sandbox exec, sandbox ssh, sandbox shell"},
	{"cp", "copy, upload, download, push, pull, sandbox cp"},
	{"port", "ports, forward, port-forward, sandbox port"},
	{"house list", "houses, workspaces, orgs"},
	{"member list", "members, people, users, user, agents, house members"},
	{"invite list", "invites, house invites"},
	{"invite create", "member add, member create, house invite"},
	{"bot list", "bots"},
	{"env list", "envs, environment, environments"},
	{"sandbox list", "sandboxes, box, boxes, machines"},
	{"model list", "models"},
	{"secret list", "secrets"},
	{"key list", "keys, apikeys"},
	{"token create", "tokens, auth token"},
	{"artifact list", "artifacts, file, files"},
	{"approval list", "approvals"},
	{"profile list", "profiles, servers, contexts"},
	{"profile use", "use, switch, profile switch, auth switch"},
	{"auth status", "whoami, who, id, me, status, profile show"},
	{"login", "signin, sign-in, log-in, auth login, profile add, profile create"},
	{"logout", "signout, sign-out, log-out, auth logout, profile delete, profile remove"},
	{"up", "start, init, server, daemon, dev, install"},
	{"config", "settings, configure"},
	{"doctor", "check, health, ping, diagnose, debug"},
	{"house audit", "audit, events"},
	{"house limit", "limit, limits, budget, cost, spend"},
	{"help", "man, usage, docs"},
}

// synonyms are words for verbs that many groups have. A word stands for the first of these verbs that the group has.
var synonyms = []struct{ verb, typed string }{
	{"list", "ls, all"},
	{"show", "get, view, describe, info, cat"},
	{"create", "new, add, make"},
	{"set", "new, add, create, update, put"},
	{"add", "new, create"},
	{"put", "add, new, create, upload"},
	{"get", "show, cat, read, download"},
	{"delete", "rm, remove, del, destroy"},
	{"remove", "rm, delete, del"},
	{"revoke", "rm, remove, delete, del"},
	{"edit", "update, change, set"},
	{"rename", "mv"},
	{"use", "switch, set"},
}

// habit returns the verb that a person probably meant by an unknown word in a group, or "".
func habit(group *cobra.Command, word string) string {
	typed := strings.Join(append(strings.Fields(group.CommandPath())[1:], word), " ")
	for _, h := range habits {
		if slices.Contains(strings.Split(h.typed, ", "), typed) {
			return group.Root().Name() + " " + h.verb
		}
	}
	for _, s := range synonyms {
		has := func(c *cobra.Command) bool { return c.Name() == s.verb && c.IsAvailableCommand() }
		if group.HasParent() && slices.Contains(strings.Split(s.typed, ", "), word) && slices.ContainsFunc(group.Commands(), has) {
			return group.CommandPath() + " " + s.verb
		}
	}
	return ""
}

// unknownVerb returns the error for a word that is not a verb of a group. It suggests the verb that the person probably
// meant.
func unknownVerb(group *cobra.Command, word string) error {
	message := fmt.Sprintf("%s has no verb %q", group.CommandPath(), word)
	if verb := habit(group, word); verb != "" {
		return fault.New(fault.Invalid, message, "use "+verb)
	}
	group.SuggestionsMinimumDistance = min(2, len(word)/2) // among short words, everything is within two letters
	if near := group.SuggestionsFor(word); len(near) > 0 {
		return fault.New(fault.Invalid, message, fmt.Sprintf("did you mean %s %s?", group.CommandPath(), near[0]))
	}
	return misusedVerb(group, message)
}

// isTask refuses a word that means a list in other programs. A coding agent would work on it, which costs money.
func isTask(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || !slices.Contains([]string{"ls", "list", "ps"}, args[0]) {
		return nil
	}
	return fault.Newf(fault.Invalid, fmt.Sprintf("use arbe thread list; for the command %s in a sandbox, use arbe x %s", args[0], args[0]),
		"%s gives a coding agent a task, and %q is not a task", cmd.CommandPath(), args[0])
}
