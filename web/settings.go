package web

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// The pages of a house's settings: members (members.go), bots (bots.go), environments (environments.go) and API keys
// (keys.go). They work without a script.

// inSettings stands for the open thread on a page of the settings, where there is none.
const inSettings = "settings"

// settingsPage is one of them, by the last part of its address.
type settingsPage struct{ Path, Title string }

var settingsPages = []settingsPage{{"members", "Members"}, {"bots", "Bots"}, {"environments", "Environments"}, {"keys", "API keys"}}

// address is where the page of a house is.
func (p settingsPage) address(house string) string { return settingsPath(house, p.Path) }

func settingsPath(house, page string) string { return housePath(house) + "/" + page }

// isOwner reports whether the one who looks owns the house.
func (f layout) isOwner() bool { return f.House.Role == "owner" }

// everyMember reads who is in a house: up to a thousand, oldest first.
func (a *app) everyMember(ctx context.Context, house string) (members []*arbev1.Member, err error) {
	for page := ""; len(members) < 1000; {
		res, err := a.services.houses.ListMembers(ctx, &arbev1.ListMembersRequest{HouseId: house, PageSize: 200, PageToken: page})
		if err != nil {
			return nil, err
		}
		members = append(members, res.Members...)
		if page = res.NextPageToken; page == "" {
			break
		}
	}
	return members, nil
}

// problems are what is wrong with a form, by the name of the field; under the empty name what is about no field.
type problems map[string]string

// add notes what is wrong with a field. The first problem of a field stays.
func (p problems) add(field, what string) {
	if p[field] == "" {
		p[field] = what
	}
}

// fieldPrefix begins a message about a field: "config.limits.memory_mb: ".
var fieldPrefix = regexp.MustCompile(`^([a-z_]+(?:\.[a-z_]+)*): `)

// problemsOf reads what a service says about a form whose fields have these names. It returns an error that is not about
// what somebody wrote as it is.
func problemsOf(err error, fields ...string) (problems, error) {
	f := faultOf(err)
	switch f.Code {
	case fault.Invalid, fault.Precondition, fault.Exhausted, fault.Exists, fault.Forbidden, fault.NotFound:
	default:
		return nil, err
	}
	found, known := problems{}, map[string]bool{}
	for _, field := range fields {
		known[field] = true
	}
	for field, what := range violations(err) {
		if !known[field] {
			field, what = "", field+": "+what
		}
		found.add(field, sentence(what))
	}
	if len(found) > 0 {
		return found, nil
	}
	field, what := "", f.Message
	if m := fieldPrefix.FindStringSubmatch(what); m != nil {
		if name := m[1][strings.LastIndexByte(m[1], '.')+1:]; known[name] {
			field, what = name, what[len(m[0]):]
		}
	}
	text := sentence(what)
	if f.Next != "" {
		text += " " + sentence(f.Next)
	}
	found.add(field, text)
	return found, nil
}

// violations are the rules of the contract that a request breaks: messages by the last part of the field's name.
func violations(err error) map[string]string {
	said, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	found := map[string]string{}
	for _, detail := range said.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // a detail of a kind that this page does not know
		}
		broken, ok := value.(*validate.Violations)
		if !ok {
			continue
		}
		for _, v := range broken.GetViolations() {
			path := v.GetField().GetElements()
			if len(path) > 0 && found[path[len(path)-1].GetFieldName()] == "" {
				found[path[len(path)-1].GetFieldName()] = v.GetMessage()
			}
		}
	}
	return found
}

// shownOnce keeps a page that holds a secret out of caches, and its address out of others' logs.
func shownOnce(w http.ResponseWriter) { keepToken(w) }

// addressOf is a path of this app as somebody else opens it: behind the address that the browser has for the app.
func (a *app) addressOf(r *http.Request, path string) string {
	if origin := r.Header.Get("Origin"); strings.HasPrefix(origin, "http") {
		return origin + path
	}
	scheme := "http://"
	if a.secure || r.TLS != nil {
		scheme = "https://"
	}
	return scheme + r.Host + path
}

// roleWord is a role in a sentence, roleTitle by itself.
func roleWord(role string) string {
	if role == "owner" {
		return "an owner"
	}
	return "a " + role
}

func roleTitle(role string) string {
	if role == "owner" {
		return "Owner"
	}
	return "Member"
}
