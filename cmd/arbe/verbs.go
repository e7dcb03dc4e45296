package main

import "github.com/spf13/cobra"

// verbs lists the top-level verbs, in the groups and the order of the help.
var verbs = []struct {
	title string
	verbs []func(*app) *cobra.Command
}{
	{"Threads", []func(*app) *cobra.Command{ask, runTask, inbox, search, thread, say, x, attach, waitFor, cp, port, approval, approve, deny, artifact}},
	{"Houses", []func(*app) *cobra.Command{house, member, invite, agent, bot, env, sandbox, secret, model}},
	{"Access", []func(*app) *cobra.Command{login, logout, profileGroup, auth, session, notifications, key, token}},
	{"Servers", []func(*app) *cobra.Command{up, serve, migrate, config, doctor, secretKey, signingKey, streamProxy}},
	{"Others", []func(*app) *cobra.Command{version, schema, completion}},
}

func thread(a *app) *cobra.Command {
	return group(a, "thread", "Create, list, change, fork and delete threads; read and write their logs",
		threadCreate, threadList, threadShow, threadRename, threadPin, threadUnpin, threadSeen, threadMute, threadUnmute, threadTag, threadClose, threadReopen,
		threadFork, threadExport, threadCancel, threadStop, threadRetry, threadQueue, threadReact, threadWhy, threadAnswering, threadModel, threadResult, threadResume, threadApply, threadBranch, threadReconcile, threadPrune, threadDiagnose, threadDelete, threadEntries)
}

func threadEntries(a *app) *cobra.Command {
	return group(a, "entries", "Read and write the log of a thread", threadEntriesCreate, threadEntriesList, threadEntriesRead)
}

func approval(a *app) *cobra.Command {
	return group(a, "approval", "List and show the tool calls that wait for a person's approval", approvalList, approvalShow)
}

func artifact(a *app) *cobra.Command {
	return group(a, "artifact", "List, read, store and delete artifacts: files that outlive sandboxes", artifactList, artifactGet, artifactPut, artifactDelete)
}

func house(a *app) *cobra.Command {
	return group(a, "house", "List, create, rename and delete houses; set limits, retention and approvals; list who changed what", houseList, houseCreate, houseRename, houseLimit, houseRetention, houseAsk, houseAudit, houseDelete)
}

func member(a *app) *cobra.Command {
	return group(a, "member", "List and remove the people and bots of a house, and change their roles", memberList, oldName(memberInvite, "invite create"), memberRole, memberRemove)
}

func invite(a *app) *cobra.Command {
	return group(a, "invite", "Create, list and revoke invites: links with which people join a house", inviteCreate, inviteList, inviteRevoke)
}

// agent has the older names of what member and bot do.
func agent(a *app) *cobra.Command {
	g := group(a, "agent", "List the people and bots of a house, and create bots", oldName(agentList, "member list"), oldName(agentCreate, "bot create"))
	g.Hidden = true
	return g
}

func bot(a *app) *cobra.Command {
	return group(a, "bot", "List, show, create, edit and delete the bots of a house", botList, botShow, botCreate, botEdit, botDelete, botTools, botRuntimes)
}

func env(a *app) *cobra.Command {
	return group(a, "env", "List, show, create, edit, check and delete environments: what sandboxes are built from",
		envList, envShow, envCreate, envEdit, envAllow, envDiagnose, envDelete)
}

func sandbox(a *app) *cobra.Command {
	return group(a, "sandbox", "List, show and delete sandboxes", sandboxList, sandboxAccounts, sandboxShow, sandboxLogs, sandboxDelete)
}

func secret(a *app) *cobra.Command {
	return group(a, "secret", "Set, list and delete the secrets of a house", secretSet, secretList, secretDelete, secretRotate)
}

func model(a *app) *cobra.Command {
	return group(a, "model", "List the models of a house, and choose its default", modelList, modelDefault, modelFallback, modelAdd, modelRemove)
}

func profileGroup(a *app) *cobra.Command {
	return group(a, "profile", "List and choose the servers that you logged in to", profileList, profileUse)
}

func auth(a *app) *cobra.Command {
	return group(a, "auth", "Show who you are and which server you use, and change your name", oldName(authWhoami, "auth status"), authStatus, authRename)
}

func session(a *app) *cobra.Command {
	return group(a, "session", "List where you are logged in, and log out there", sessionList, sessionRevoke)
}

func key(a *app) *cobra.Command {
	return group(a, "key", "Create, list and revoke API keys", keyCreate, keyList, keyRevoke)
}

func token(a *app) *cobra.Command {
	return group(a, "token", "Create, renew and revoke tokens for one thread", tokenCreate, tokenRenew, tokenRevoke)
}
