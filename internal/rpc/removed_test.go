package rpc_test

import (
	"fmt"
	"sync"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Once a removal is acknowledged, the removed member gets nothing that is said from then on, whichever of two servers each
// request goes through.
func TestWhatIsSaidInTheInstantOfARemovalReachesNoOpenTail(t *testing.T) {
	t.Parallel()
	one := setup(t)
	two := serve(t, one.Database)
	servers := []*bench{one, two}
	thread := one.ada.thread(t, &arbev1.CreateThreadRequest{})
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		before, after := fmt.Sprint("before ", round), fmt.Sprint("after ", round)
		remover, writer := servers[round%2], servers[round/2%2]
		var tails, ready sync.WaitGroup
		for n, server := range servers {
			for range 5 {
				ready.Add(1)
				tails.Go(func() {
					here := sync.OnceFunc(ready.Done)
					defer here()
					tail, err := server.client(one.cyd.key).Entries.Tail(t.Context(), &arbev1.TailRequest{ThreadId: thread.Id})
					if err != nil {
						t.Errorf("round %d: a tail through server %d does not begin: %v", round, n, err)
						return
					}
					defer tail.Close()
					for tail.Receive() {
						switch tail.Msg().GetEntry().GetId() {
						case before:
							here()
						case after:
							t.Errorf("round %d: a tail through server %d has what was said after the removal", round, n)
						}
					}
				})
			}
		}
		say := func(through *bench, id string) {
			_, err := through.client(one.ada.key).Entries.Append(t.Context(), &arbev1.AppendRequest{ThreadId: thread.Id, Id: id, Type: "chat", Payload: chat(id)})
			must(t, err)
		}
		say(writer, before)
		ready.Wait()
		_, err := remover.client(one.ada.key).Houses.RemoveMember(t.Context(), &arbev1.RemoveMemberRequest{HouseId: one.ada.house.Id, AgentId: one.cyd.id})
		must(t, err)
		say(writer, after)
		tails.Wait() // the removal ends each tail
		one.exec(t, "insert into members (house_id, agent_id, role) values ($1, $2, 'member')", one.ada.house.Id, one.cyd.id)
	}
}
