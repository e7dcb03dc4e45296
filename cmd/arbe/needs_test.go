package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// needsAt returns the command needs of scripts; see [TestScriptsWithBots]. It reads the number of threads that need the person
// everywhere where it is shown: what the API says, what arbe inbox lists, and the page's title, its badge and its list.
func needsAt(host string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		want := map[string]string{}
		for _, where := range []string{"the API", "arbe inbox", "the list", "the badge", "the page's data"} {
			want[where] = args[0]
		}
		if want["the title"] = "(" + args[0] + ") "; args[0] == "0" {
			want["the title"], want["the badge"] = "", ""
		}
		want["the reasons"] = strings.Join(slices.Sorted(slices.Values(args[1:])), " ")
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			got := needsSeen(ts, host)
			if fmt.Sprint(got) == fmt.Sprint(want) {
				return
			} else if time.Now().After(deadline) {
				ts.Fatalf("it needs %q, want %q", got, want)
			}
		}
	}
}

// needsSeen returns how many threads need the person of the current profile, by where it is shown.
func needsSeen(ts *testscript.TestScript, host string) map[string]string {
	ctx := context.Background() // a script has none
	var saved profiles
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(filepath.Join(ts.Getenv("HOME"), ".config", "arbe", "config.json"))), &saved))
	session := saved.All[saved.Current].Token
	c := arbe.New(host, session)
	houses, err := allHouses(ctx, c)
	ts.Check(err)
	inbox, err := c.Inboxes.GetInbox(ctx, &arbev1.GetInboxRequest{HouseId: houses[0].Id})
	ts.Check(err)

	ts.Check(ts.Exec("arbe", "inbox", "--json"))
	var listed []needView
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &listed))
	var reasons []string
	for _, n := range listed {
		reasons = append(reasons, n.Reasons...)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/houses/"+houses[0].Id, nil)
	ts.Check(err)
	req.AddCookie(&http.Cookie{Name: arbev1.SessionCookie, Value: session})
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	ts.Check(err)
	page := string(text)
	part := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(page)
		if m == nil {
			return ""
		}
		return m[1]
	}
	return map[string]string{
		"the API": fmt.Sprint(inbox.Inbox.Total), "arbe inbox": fmt.Sprint(len(listed)), "the reasons": strings.Join(slices.Sorted(slices.Values(reasons)), " "),
		"the list": fmt.Sprint(strings.Count(page, `<li id="need-`)), "the page's data": part(`data-needs="(\d+)"`),
		"the badge": part(`<span class="place-name">Needs you</span>\s*<span class="count">(\d+)</span>`), "the title": part(`<title id="title">(\(\d+\) )?`),
	}
}
