package server

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
	"subctl/sdewan/rest"
)

// BenchmarkGet reads objects with 10 clients from a CNF with 1,000 rules. Each client has a
// connection of its own, and sends its next request as soon as it has the answer. Clients and the
// CNF run on the same machine.
func BenchmarkGet(b *testing.B) {
	const clients, each, rules = 10, 1000, 1000
	c := newCNF(b, "")
	for i := range rules {
		require.NoError(
			b,
			c.Store.put(
				rest.FirewallRules,
				&rest.FirewallRule{
					Name:     fmt.Sprintf("rule-%d", i),
					DestIP:   "192.0.2.0/24",
					DestPort: "443",
					Proto:    "tcp",
					Target:   "ACCEPT",
				},
				nil,
				true,
			),
		)
	}
	address, pool, _ := c.listening(b)
	u := &upstream{base: "https://" + address + "/cgi-bin/luci/", password: password, pool: pool}
	_, err := u.login()
	require.NoError(b, err)
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:     u.client().Transport.(*http.Transport).TLSClientConfig,
			MaxIdleConnsPerHost: clients,
		},
	}
	get := func(i int) error {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet,
			u.base+fmt.Sprintf("sdewan/firewall/v1/rules/rule-%d", i%rules), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Cookie", "sysauth="+u.token)
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s (%w)", resp.Status, err)
		}
		return nil
	}
	for b.Loop() {
		var slow measure.Values // the 99th percentile of each turn, in milliseconds
		for range measure.Times(10) {
			took := make([]time.Duration, clients*each)
			var wait sync.WaitGroup
			for i := range clients {
				wait.Go(func() {
					for j := range each {
						begin := time.Now()
						if err := get(i*each + j); err != nil {
							b.Error(err)
							return
						}
						took[i*each+j] = time.Since(begin)
					}
				})
			}
			wait.Wait()
			slices.Sort(took)
			slow = append(slow, float64(took[len(took)*99/100].Microseconds())/1000)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		measure.Record(
			b,
			measure.AtMost("CNF: REST GET with 10 clients, 99th percentile", slow, 10, "ms"),
			measure.Info("CNF: REST GET with 10 clients: memory of the CNF and the clients",
				measure.Values{float64(m.HeapInuse) / (1 << 20)}, "MiB"),
		)
	}
}
