package house_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/arbe-dev/arbe/db/dbtest"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/house"
	"github.com/arbe-dev/arbe/internal/sandbox"
)

func TestWhoCreatesHouses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		creation                   house.Creation
		operator, member, stranger fault.Code
	}{
		{"", "", "", ""},
		{house.Anyone, "", "", ""},
		{house.Members, "", "", fault.Forbidden},
		{house.Operators, "", fault.Forbidden, fault.Forbidden},
	} {
		t.Run(string(c.creation), func(t *testing.T) {
			t.Parallel()
			d := dbtest.Reuse(t, 10)
			houses := setup(t, d, nil, map[string]error{sandbox.DefaultDriver: fault.New(fault.Unavailable, "no runtime", "install it")})
			houses.Creation = c.creation
			person := func(name string) string {
				id, err := houses.CreatePerson(t.Context(), name)
				must(t, err)
				return id
			}
			operator, member, stranger := person("Olga"), person("Mia"), person("Sam")
			first, err := houses.Create(t.Context(), operator, "The first") // everyone may create this one
			must(t, err)
			_, err = d.Owner(t).Exec(t.Context(), "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", first.ID, member)
			must(t, err)
			for _, p := range []struct {
				id   string
				want fault.Code
			}{{operator, c.operator}, {member, c.member}, {stranger, c.stranger}} {
				h, err := houses.Create(t.Context(), p.id, "One more")
				if p.want == "" && (err != nil || h.ID == "") || p.want != "" && fault.CodeOf(err) != p.want {
					t.Errorf("%s creates %+v: %v", p.id, h, err)
				}
				if f := fault.From(err); err != nil && (f.Message == "" || f.Next == "") {
					t.Errorf("it says %q, %q", f.Message, f.Next)
				}
			}
		})
	}
}

// A person cannot have more houses than the operator allows, however many concurrent calls they make. Houses that
// belong to others do not count, and operators have no limit.
func TestHowManyHousesBelongToAPerson(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	const most = 3
	var servers []*house.Houses
	for range 2 {
		houses := setup(t, d, nil, map[string]error{sandbox.DefaultDriver: fault.New(fault.Unavailable, "no runtime", "install it")})
		houses.PerPerson = most
		servers = append(servers, houses)
	}
	operator, err := servers[0].CreatePerson(t.Context(), "Olga")
	must(t, err)
	greedy, err := servers[0].CreatePerson(t.Context(), "Greta")
	must(t, err)
	theirs, err := servers[0].Create(t.Context(), operator, "The first")
	must(t, err)
	_, err = d.Owner(t).Exec(t.Context(), "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", theirs.ID, greedy)
	must(t, err)
	try := func(agent string, times int) (made, refused int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range times {
			all.Go(func() {
				_, err := servers[i%2].Create(context.WithoutCancel(t.Context()), agent, fmt.Sprint("House ", i))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					made++
				case fault.CodeOf(err) == fault.Exhausted:
					refused++
				default:
					t.Error(fault.From(err).Detail())
				}
			})
		}
		all.Wait()
		return made, refused
	}
	if made, refused := try(greedy, 12); made != most || refused != 12-most {
		t.Errorf("%d were made and %d refused, want %d made", made, refused, most)
	}
	if made, _ := try(operator, most+2); made != most+2 {
		t.Errorf("an operator made %d of %d", made, most+2)
	}
}
