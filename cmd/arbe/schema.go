package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/export"
	"github.com/arbe-dev/arbe/internal/fault"
	build "github.com/arbe-dev/arbe/internal/version"
)

// schema prints the JSON Schema of what a verb prints with --json.
func schema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema VERB…",
		Short: "Print the JSON Schema of what a verb prints with --json",
		Long: "Print the JSON Schema (draft 2020-12) of what a verb prints with --json. If a verb prints several JSON values, one a line,\n" +
			"the schema is that of each line. Later versions may add fields.",
		Example: "  arbe schema thread list\n" +
			"  arbe schema thread entries list --jq '.properties | keys'",
		Args:              takes(1, 10, "a verb"),
		ValidArgsFunction: completeVerb,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || about == cmd.Root() {
				return fault.Newf(fault.Invalid, "see the verbs with: arbe help", "arbe has no verb %q", strings.Join(args, " "))
			}
			if about.HasSubCommands() {
				return fault.Newf(fault.Invalid, "name one of its verbs; see "+about.CommandPath()+" --help", "%s is a group of verbs", about.CommandPath())
			}
			views, ok := viewsOf[strings.TrimPrefix(about.CommandPath(), "arbe ")]
			if !ok {
				return fault.Newf(fault.Invalid, "", "%s prints no JSON", about.CommandPath())
			}
			view := schemaOf(about.CommandPath(), views)
			if a.json {
				return a.printJSON(view)
			}
			text, err := json.MarshalIndent(view, "", "  ")
			if err == nil {
				_, err = a.out.Write(append(text, '\n'))
			}
			return err
		},
	}
}

// schemaOf returns the schema of values that each have the type of one of the views.
func schemaOf(title string, views []any) map[string]any {
	all := make([]any, len(views))
	for i, view := range views {
		all[i] = schemaOfType(reflect.TypeOf(view))
	}
	found := map[string]any{"anyOf": all}
	if len(all) == 1 {
		found = all[0].(map[string]any)
	}
	found["$schema"], found["title"] = "https://json-schema.org/draft/2020-12/schema", title
	return found
}

var (
	typeOfTime      = reflect.TypeFor[time.Time]()
	typeOfMarshaler = reflect.TypeFor[json.Marshaler]()
)

// schemaOfType describes how package json encodes a type.
func schemaOfType(t reflect.Type) map[string]any {
	switch {
	case t == typeOfTime:
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return schemaOfType(t.Elem())
	case t.Implements(typeOfMarshaler), t.Kind() == reflect.Interface: // any JSON
		return map[string]any{}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOfType(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOfType(t.Elem())}
	case reflect.Struct:
		fields, required := map[string]any{}, []string{}
		schemaOfFields(t, fields, &required)
		return map[string]any{"type": "object", "properties": fields, "required": required}
	}
	return map[string]any{"type": "integer"}
}

// schemaOfFields adds the fields of a struct. A pointer that is never left out may be null.
func schemaOfFields(t reflect.Type, fields map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer:
			schemaOfFields(f.Type.Elem(), fields, &[]string{}) // it may be nil, so that none of them is required
			continue
		case f.Anonymous && name == "":
			schemaOfFields(f.Type, fields, required)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		field := schemaOfType(f.Type)
		optional := strings.Contains(options, "omit")
		if !optional {
			*required = append(*required, name)
		}
		if kind, is := field["type"].(string); is && f.Type.Kind() == reflect.Pointer && !optional {
			field["type"] = []string{kind, "null"}
		}
		fields[name] = field
	}
}

// viewsOf has the views that each verb prints with --json. [TestEveryVerbPrintsJSON] compares them with what the verbs print.
var viewsOf = map[string][]any{
	"ask": {askView{}}, "run": {export.Thread{}, export.Entry{}, runView{}}, "inbox": {[]needView{}}, "search": {[]hitView{}}, "say": {export.Entry{}},
	"x": {export.Entry{}, deltaView{}}, "wait": {export.Entry{}}, "port": {forwardView{}},

	"thread create": {export.Thread{}}, "thread list": {[]export.Thread{}, watchedView{}}, "thread show": {shownThread{}}, "thread rename": {export.Thread{}},
	"thread pin": {export.Thread{}}, "thread unpin": {export.Thread{}}, "thread seen": {readingView{}}, "thread mute": {readingView{}},
	"thread unmute": {readingView{}}, "thread tag": {export.Thread{}}, "thread close": {export.Thread{}}, "thread reopen": {export.Thread{}},
	"thread fork": {export.Thread{}}, "thread export": {export.Head{}, export.Entry{}}, "thread cancel": {[]commandView{}}, "thread stop": {[]turnView{}},
	"thread retry": {turnView{}}, "thread queue list": {[]queuedView{}}, "thread queue edit": {[]queuedView{}}, "thread queue move": {[]queuedView{}},
	"thread queue send": {[]queuedView{}}, "thread queue cancel": {[]queuedView{}}, "thread react": {export.Entry{}}, "thread why": {[]whyView{}},
	"thread answering": {[]answererView{}, export.Thread{}}, "thread model": {export.Thread{}}, "thread result": {runView{}}, "thread resume": {runView{}, export.Entry{}},
	"thread apply": {usedView{}}, "thread branch": {usedView{}}, "thread reconcile": {reconciledView{}}, "thread prune": {[]reconciledView{}},
	"thread diagnose": {diagnosisView{}}, "thread delete": {deletedView{}}, "thread entries create": {export.Entry{}},
	"thread entries list": {export.Entry{}}, "thread entries read": {export.Entry{}},

	"approval list": {[]approvalView{}}, "approval show": {approvalView{}}, "approve": {approvalView{}}, "deny": {approvalView{}},
	"artifact list": {[]artifactView{}}, "artifact get": {artifactView{}}, "artifact put": {artifactView{}}, "artifact delete": {deletedView{}},

	"house list": {[]houseView{}}, "house create": {houseView{}}, "house rename": {houseView{}}, "house limit": {limitView{}},
	"house retention": {retentionView{}}, "house ask": {houseAskView{}}, "house audit": {[]auditView{}}, "house delete": {deletedView{}},
	"member list": {[]memberView{}}, "member role": {memberView{}}, "member remove": {removedMemberView{}},
	"invite create": {createdInviteView{}}, "invite list": {[]inviteView{}}, "invite revoke": {revokedView{}},
	"bot list": {[]botView{}}, "bot show": {botView{}}, "bot create": {botView{}}, "bot edit": {botView{}}, "bot delete": {deletedBotView{}},
	"bot tools": {[]botToolView{}}, "bot runtimes": {[]runtimeView{}},
	"env list": {[]environmentView{}}, "env show": {environmentView{}}, "env create": {environmentView{}}, "env edit": {environmentView{}},
	"env allow": {environmentView{}}, "env diagnose": {environmentCheckView{}}, "env delete": {deletedView{}},
	"sandbox list": {[]sandboxView{}}, "sandbox accounts": {[]sandboxAccountView{}}, "sandbox show": {sandboxView{}}, "sandbox logs": {sandboxLogView{}},
	"sandbox delete": {sandboxView{}},
	"secret list":    {[]secretView{}}, "secret set": {setSecretView{}}, "secret rotate": {rotatedView{}}, "secret delete": {deletedSecretView{}},
	"model list": {[]endpointView{}, []modelView{}}, "model add": {addedEndpointView{}}, "model default": {defaultModelView{}},
	"model fallback": {fallbackModelsView{}}, "model remove": {removedEndpointView{}},

	"login": {loginLinkView{}, loginView{}}, "logout": {logoutView{}}, "profile list": {[]profileView{}}, "profile use": {usedProfileView{}},
	"auth status": {authView{}}, "auth whoami": {whoView{}}, "auth rename": {export.Agent{}}, "session list": {[]sessionView{}}, "session revoke": {endedView{}},
	"notifications": {notificationsView{}}, "key create": {createdKeyView{}}, "key list": {[]keyView{}}, "key revoke": {revokedView{}},
	"token create": {tokenView{}}, "token renew": {tokenView{}}, "token revoke": {revokedTokensView{}},

	"up": {runningView{}}, "serve": {runningView{}}, "migrate": {map[string]bool{}}, "config": {settingsView{}}, "doctor": {[]finding{}},
	"secret-key create": {secretKeyView{}, map[string]string{}}, "secret-key rotate": {map[string]int{}}, "signing-key rotate": {map[string]bool{}},
	"stream-proxy": {map[string]string{}}, "version": {build.Info{}}, "help": {helpView{}}, "schema": {map[string]any{}},
	"completion bash": {map[string]string{}}, "completion zsh": {map[string]string{}}, "completion fish": {map[string]string{}},
	"completion powershell": {map[string]string{}},
}

// forwardView is a port of a sandbox that is reachable here.
type forwardView struct {
	Local     string `json:"local"`
	Port      uint16 `json:"port"`
	SandboxID string `json:"sandbox_id"`
	ThreadID  string `json:"thread_id"`
}

// watchedView is a change of a list that is watched: a thread as it is now, or the id of one that has left the list.
type watchedView struct {
	Thread *export.Thread `json:"thread,omitempty"`
	Gone   string         `json:"gone,omitempty"`
}
