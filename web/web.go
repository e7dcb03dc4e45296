// Package web is arbe in a browser: pages rendered on the server, kept live by Datastar over SSE.
//
// It is a client of the services like any other. Everything it shows and does goes through the generated Connect clients
// (services.go), in-process, on behalf of the person whose session the request carries. So a program can do whatever a person
// can do here. Permissions are decided behind the services, never here.
//
// Layout: a page is three files. Each uses only those after it: <page>.go answers requests, <page>.templ is the HTML, and
// <page>_view.go holds the data that the HTML shows. A request goes from the table below to a handler that returns an error;
// [app.page] shows every error on the one error page (fail.go). Package transcript turns the entries of a thread into rows,
// in the same way for a page (thread.go), for older entries (entries.go) and for the live tail (tail.go); row.go has the view
// of each.
//
// A large component that several functions show is marked go:noinline. The compiler would otherwise copy it into each of them.
//
// The rules to remember: a page is complete and useful without a script; text that people wrote reaches HTML only through
// templ's escaping, the Markdown sanitizer or the terminal renderer, and never becomes part of a Datastar expression; and a
// live event is harmless when it arrives twice (tail.go explains how).
package web

import (
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"connectrpc.com/connect"
)

// Config configures the web app.
type Config struct {
	// HTTPClient carries the calls to the services, in memory when they are in this process.
	HTTPClient connect.HTTPClient
	// BaseURL is the services' address in HTTPClient's terms.
	BaseURL string
	// Secure reports that browsers reach the app only over https. Cookies are then sent over https only. Defaults to
	// false.
	Secure bool
	// Previews is the address below which previews have their hosts. If it is nil, previews are off.
	Previews *url.URL
	// Provider is the name of the login provider; empty if there is none.
	Provider string
	// Log receives the details of failures, which people must not see. Defaults to [slog.Default].
	Log *slog.Logger
}

// route is a row of the table of all pages.
type route struct {
	// pattern is a pattern of [http.ServeMux].
	pattern string
	handler http.Handler
}

// New returns the web app. It answers every path; mount it at "/".
func New(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	a := &app{services: dial(c.HTTPClient, c.BaseURL), secure: c.Secure, previews: c.Previews, provider: c.Provider, log: c.Log}
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		mux.Handle(r.pattern, r.handler)
	}
	return hardened(http.NewCrossOriginProtection().Handler(mux))
}

func (a *app) routes() []route {
	return slices.Concat(a.commonRoutes(), a.houseRoutes(), a.threadRoutes())
}

func (a *app) commonRoutes() []route {
	return []route{
		{"GET /{$}", a.page(a.home)},
		{"GET /login", a.open(a.login)},
		{"POST /login", a.open(a.redeem)},
		{"POST /login/provider", a.open(a.beginLogin)},
		{"GET /login/callback", a.open(a.finishLogin)},
		{"GET /login/device", a.page(a.device)},
		{"POST /login/device", a.page(a.answerDevice)},
		{"POST /logout", a.page(a.logout)},
		{"GET /profile", a.page(a.profile)},
		{"POST /profile", a.page(a.changeProfile)},
		{"GET /sessions", a.page(a.sessions)},
		{"POST /sessions", a.page(a.endSessions)},
		{"GET /notifications", a.page(a.notifications)},
		{"POST /notifications", a.page(a.setNotifications)},
		{"POST /notifications/devices", a.page(a.addDevice)},
		{"POST /notifications/devices/remove", a.page(a.removeDevice)},
		{"GET /sw.js", http.HandlerFunc(serviceWorker)},
		{"POST /theme", a.open(a.theme)},
		{"GET /join", a.open(a.join)},
		{"POST /join", a.open(a.accept)},

		{"GET /live", a.open(a.live)},
		{"GET /static/{name}", static()},
		{"/", a.open(a.nowhere)},
	}
}

func (a *app) houseRoutes() []route {
	return []route{
		{"GET /houses/{house}", a.page(a.house)},
		{"POST /houses/{house}/threads", a.page(a.startThread)},
		{"POST /houses/{house}/started", a.page(a.dismissChecklist)},
		{"POST /houses/{house}/inbox", a.page(a.tendInbox)},
		{"GET /houses/{house}/search", a.page(a.search)},

		{"GET /houses/{house}/settings", a.page(a.general)},
		{"POST /houses/{house}/settings", a.page(a.changeGeneral)},
		{"POST /houses/{house}/delete", a.page(a.deleteHouse)},
		{"GET /houses/{house}/members", a.page(a.members)},
		{"POST /houses/{house}/members/{agent}", a.page(a.changeMember)},
		{"POST /houses/{house}/members/{agent}/remove", a.page(a.removeMember)},
		{"POST /houses/{house}/members/{agent}/message", a.page(a.messageAgent)},
		{"POST /houses/{house}/invites", a.page(a.invite)},
		{"POST /houses/{house}/invites/{invite}/revoke", a.page(a.revokeInvite)},
		{"GET /houses/{house}/bots", a.page(a.bots)},
		{"POST /houses/{house}/bots", a.page(a.createBot)},
		{"GET /houses/{house}/bots/new", a.page(a.newBot)},
		{"POST /houses/{house}/limits", a.page(a.limitHouse)},
		{"POST /houses/{house}/ask", a.page(a.askHouse)},
		{"GET /houses/{house}/bots/{bot}", a.page(a.bot)},
		{"POST /houses/{house}/bots/{bot}", a.page(a.changeBot)},
		{"POST /houses/{house}/bots/{bot}/delete", a.page(a.deleteBot)},
		{"POST /houses/{house}/bots/{agent}/message", a.page(a.messageAgent)},
		{"POST /houses/{house}/bots/{bot}/policies", a.page(a.addPolicy)},
		{"POST /houses/{house}/bots/{bot}/policies/{policy}", a.page(a.changePolicy)},
		{"GET /houses/{house}/keys", a.page(a.keys)},
		{"POST /houses/{house}/keys", a.page(a.createKey)},
		{"POST /houses/{house}/keys/{key}/revoke", a.page(a.revokeKey)},
		{"GET /houses/{house}/models", a.page(a.models)},
		{"POST /houses/{house}/models", a.page(a.pasteKey)},
		{"POST /houses/{house}/models/default", a.page(a.chooseModel)},
		{"POST /houses/{house}/models/fallbacks", a.page(a.chooseFallbacks)},
		{"POST /houses/{house}/models/servers", a.page(a.addServer)},
		{"POST /houses/{house}/models/servers/{name}/remove", a.page(a.removeServer)},
		{"GET /houses/{house}/audit", a.page(a.audit)},
		{"GET /houses/{house}/retention", a.page(a.retention)},
		{"POST /houses/{house}/retention", a.page(a.setRetention)},
		{"GET /houses/{house}/secrets", a.page(a.secrets)},
		{"POST /houses/{house}/secrets", a.page(a.setSecret)},
		{"POST /houses/{house}/secrets/{name}/delete", a.page(a.deleteSecret)},
		{"GET /houses/{house}/environments", a.page(a.environments)},
		{"POST /houses/{house}/environments", a.page(a.createEnvironment)},
		{"GET /houses/{house}/environments/new", a.page(a.newEnvironment)},
		{"GET /houses/{house}/sandboxes", a.page(a.sandboxes)},
		{"POST /houses/{house}/sandboxes/reconcile", a.page(a.reconcileSandboxes)},
		{"GET /sandboxes/{sandbox}", a.page(a.sandbox)},
		{"POST /sandboxes/{sandbox}/delete", a.page(a.deleteSandbox)},
		{"GET /environments/{environment}", a.page(a.environment)},
		{"POST /environments/{environment}", a.page(a.changeEnvironment)},
		{"POST /environments/{environment}/delete", a.page(a.deleteEnvironment)},
		{"POST /environments/{environment}/default", a.page(a.defaultEnvironment)},
		{"POST /environments/{environment}/diagnose", a.page(a.diagnoseEnvironment)},
	}
}

func (a *app) threadRoutes() []route {
	return []route{
		{"GET /threads/{thread}", a.page(a.thread)},
		{"POST /threads/{thread}", a.page(a.changeThread)},
		{"POST /threads/{thread}/delete", a.page(a.deleteThread)},
		{"GET /threads/{thread}/peek", a.page(a.peek)},
		{"GET /threads/{thread}/entries", a.page(a.entries)},
		{"POST /threads/{thread}/entries", a.page(a.say)},
		{"POST /threads/{thread}/answers", a.page(a.answers)},
		{"POST /threads/{thread}/typing", a.page(a.typing)},
		{"POST /threads/{thread}/read", a.page(a.markRead)},
		{"POST /threads/{thread}/mute", a.page(a.muteThread)},
		{"GET /threads/{thread}/entries/{seq}", a.page(a.entry)},
		{"GET /threads/{thread}/entries/{seq}/raw", a.page(a.entryRaw)},
		{"GET /threads/{thread}/entries/{seq}/text", a.page(a.messageText)},
		{"GET /threads/{thread}/entries/{seq}/wordings", a.page(a.wordings)},
		{"POST /threads/{thread}/entries/{seq}/react", a.page(a.react)},
		{"POST /threads/{thread}/entries/{seq}/edit", a.page(a.editMessage)},
		{"POST /threads/{thread}/entries/{seq}/delete", a.page(a.deleteMessage)},
		{"GET /threads/{thread}/entries/{seq}/output", a.page(a.commandOutputText)},
		{"POST /threads/{thread}/entries/{seq}/unread", a.page(a.markUnread)},
		{"POST /threads/{thread}/entries/{seq}/fork", a.page(a.forkThread)},
		{"POST /threads/{thread}/entries/{seq}/again", a.page(a.runAgain)},
		{"GET /threads/{thread}/model", a.page(a.threadModel)},
		{"POST /threads/{thread}/model", a.page(a.changeThreadModel)},
		{"GET /threads/{thread}/artifacts", a.page(a.artifacts)},
		{"GET /threads/{thread}/files", a.page(a.files)},
		{"GET /threads/{thread}/files/names", a.page(a.fileNames)},
		{"GET /threads/{thread}/files/download", a.page(a.downloadFile)},
		{"GET /threads/{thread}/diff", a.page(a.treeChanges)},
		{"POST /threads/{thread}/diff/comments", a.page(a.commentOnTree)},
		{"POST /threads/{thread}/diff/discard", a.page(a.discardChanges)},
		{"GET /threads/{thread}/export", a.page(a.exportThread)},
		{"GET /threads/{thread}/preview", a.page(a.preview)},
		{"POST /threads/{thread}/preview", a.page(a.openPreview)},
		{"GET /threads/{thread}/terminal", a.page(a.terminal)},
		{"POST /threads/{thread}/terminal", a.page(a.openTerminal)},
		{"GET /threads/{thread}/terminal/{command}/screen", a.page(a.followTerminal)},
		{"POST /threads/{thread}/terminal/{command}/keys", a.page(a.typeKeys)},
		{"GET /documents/{artifact}", a.page(a.document)},
		{"GET /changes/{artifact}", a.page(a.changes)},
		{"POST /changes/{artifact}/comments", a.page(a.commentOnChanges)},
		{"POST /changes/{artifact}/apply", a.page(a.applyChanges)},
		{"POST /changes/{artifact}/branch", a.page(a.openBranch)},
		{"POST /threads/{thread}/stop", a.page(a.stopRunning)},
		{"POST /threads/{thread}/commands/{command}/cancel", a.page(a.cancelCommand)},
		{"POST /threads/{thread}/turns/{turn}/stop", a.page(a.stopTurn)},
		{"POST /threads/{thread}/turns/{turn}/retry", a.page(a.retryTurn)},
		{"POST /threads/{thread}/run/stop", a.page(a.stopRun)},
		{"POST /threads/{thread}/run/continue", a.page(a.continueRun)},
		{"POST /threads/{thread}/run/delegate", a.page(a.delegate)},
		{"POST /threads/{thread}/queue", a.page(a.changeQueue)},
		{"POST /threads/{thread}/approvals/{approval}", a.page(a.answerApproval)},
		{"POST /threads/{thread}/hosts", a.page(a.allowHost)},
		{"POST /threads/{thread}/turns/{turn}/key", a.page(a.retryWithKey)},
	}
}
