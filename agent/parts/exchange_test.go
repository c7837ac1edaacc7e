package parts

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/cluster"
)

// exchanges are the exchanges that a part has started and not stopped.
type exchanges struct {
	t       *testing.T
	part    *exchanger
	sub     v1alpha1.Submariner
	started int
	running []exchange.Config
	fail    error
	reading bool // they have not read everything yet
}

type pretended struct {
	*exchanges
	config exchange.Config
}

func (p pretended) Run(ctx context.Context) error {
	if p.fail != nil {
		return p.fail
	}
	p.started++
	p.running = append(p.running, p.config)
	<-ctx.Done()
	p.running = nil
	return nil
}

func (p pretended) Status() exchange.Status {
	if p.reading {
		return exchange.Status{Reading: true, LastSync: time.Unix(1, 0)}
	}
	return exchange.Status{
		LastSync:    time.Unix(1, 0),
		Refused:     []exchange.Refusal{{Kind: "Endpoint", Name: "x", Reason: "too large"}},
		RefusedMore: 3,
	}
}

func newExchanges(t *testing.T) *exchanges {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"token", "ca.crt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600))
	}
	x := &exchanges{
		t:    t,
		part: newExchanger(Options{BrokerDir: dir, Config: &rest.Config{}, Log: slog.New(slog.DiscardHandler)}),
	}
	x.sub.Spec = v1alpha1.SubmarinerSpec{
		ClusterID:                "east",
		BrokerK8sApiServer:       "192.0.2.1:6443",
		BrokerK8sRemoteNamespace: "submariner-k8s-broker",
	}
	x.part.make = func(c exchange.Config) syncer { return pretended{x, c} }
	return x
}

// loop is one loop of an agent, which may be the speaker. It returns what the part reports.
func (x *exchanges) loop(speaker bool) *role.ExchangeStatus {
	s := role.NewSnapshot("gw", x.sub.DeepCopy())
	s.Standing.Speaker = speaker
	var out role.Outcome
	x.part.Act(s, role.Plan{}, &out)
	synctest.Wait()
	return out.Exchange
}

// The exchange runs on the speaker, and follows the Submariner object without a restart of
// the agent.
func TestExchangeFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchanges(t)
		stop := start(t, x.part)
		require.Nil(t, x.loop(false), "somebody else speaks")
		require.Empty(t, x.running)

		x.loop(true)
		require.Len(t, x.running, 1)
		require.Equal(t, "https://192.0.2.1:6443", x.running[0].Broker.Host)
		require.Equal(t, "submariner-k8s-broker", x.running[0].NamespaceOf("default"))
		require.Equal(t, "submariner-k8s-broker-a", x.running[0].NamespaceOf("a"))
		require.Equal(t, "submariner-k8s-broker/cluster-east", x.running[0].Account.String())
		status := x.loop(true)
		require.Equal(t, 1, x.started, "nothing has changed")
		require.Equal(
			t,
			&role.ExchangeStatus{
				LastSync:    time.Unix(1, 0),
				Refused:     []string{"Endpoint /x on the broker: too large"},
				RefusedMore: 3,
			},
			status,
		)

		x.reading = true
		require.Equal(t, &role.ExchangeStatus{}, x.loop(true), "too early to tell, and not wrong")
		x.reading = false

		x.sub.Spec.ClusterSets = []string{"a", "b"}
		x.loop(true)
		require.Equal(t, 1, x.started, "the exchange follows the grant by itself")

		x.sub.Spec.BrokerK8sApiServer = "192.0.2.2:6443"
		x.loop(true)
		require.Len(t, x.running, 1)
		require.Equal(t, "https://192.0.2.2:6443", x.running[0].Broker.Host)
		require.Equal(t, 2, x.started)

		require.Nil(t, x.loop(false), "another gateway was elected")
		require.Empty(t, x.running)
		x.loop(true)
		require.Len(t, x.running, 1)

		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "gw", Labels: map[string]string{submarinerv1.GatewayNodeLabel: "true"}},
		}
		idle := func() {
			x.part.Idle(role.NewSnapshot[role.Object]("gw", x.sub.DeepCopy(), node))
			synctest.Wait()
		}
		idle()
		require.Len(t, x.running, 1, "a plan can be made soon")
		node.Labels = nil
		idle()
		require.Empty(t, x.running, "its node is no gateway node any more")
		x.loop(true)
		require.Len(t, x.running, 1)
		stop()
		require.Empty(t, x.running)
	})
}

// What keeps the exchange from running is reported, and tried again. It is logged once, and when
// the exchange runs again, not only when that ends.
func TestExchangeIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		x := newExchanges(t)
		x.part.log = slog.New(slog.NewTextHandler(&log, nil))
		x.fail = errors.New("no route to host")
		stop := start(t, x.part)
		x.loop(true)
		require.Equal(t, []string{"no route to host"}, x.loop(true).Errors)
		pass(exchangeRetry)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "%s", &log)
		require.Contains(t, log.String(), `level=WARN msg="exchange with the broker" err="no route to host"`)
		log.Reset()
		x.fail = nil
		x.reading = true
		pass(exchangeRetry)
		require.Empty(t, x.running, "it is tried more and more seldom")
		pass(exchangeRetry)
		require.Len(t, x.running, 1)
		require.Empty(t, x.loop(true).Errors)
		require.Empty(t, log.String(), "it has not read anything yet")
		x.reading = false
		require.Empty(t, x.loop(true).Errors)
		require.Contains(t, log.String(), `level=INFO msg="ended: exchange with the broker"`)

		require.NoError(t, os.Remove(filepath.Join(x.part.dir, "token")))
		x.sub.Spec.BrokerK8sRemoteNamespace = "elsewhere"
		x.loop(true)
		require.Contains(t, x.loop(true).Errors[0], "reading the credentials for the broker")
		stop()
	})
}

// The exchange uses what the mounted Secret contains now, and reports what it lacks.
func TestExchangeFollowsTheTrustSecret(t *testing.T) {
	dir := t.TempDir()
	x := newExchanger(Options{Secrets: dir, Log: slog.New(slog.DiscardHandler)})
	_, err := x.identity()
	require.EqualError(t, err,
		"Secret submariner-operator/submariner-trust: signing-key is missing; administrator is missing; grant is missing")

	mounted := filepath.Join(dir, cluster.TrustSecret)
	require.NoError(t, os.Mkdir(mounted, 0o700))
	write := func(key string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(mounted, key), data, 0o600))
	}
	key, err := trust.NewKey()
	require.NoError(t, err)
	write(cluster.KeySigning, key.Seed())
	write(cluster.KeyAdministrator, []byte(key.Public().String()))
	for _, grant := range []string{"a grant", "a later grant"} {
		write(cluster.KeyGrant, []byte(grant))
		id, err := x.identity()
		require.NoError(t, err)
		require.Equal(t, exchange.Identity{Key: key, Grant: grant, Administrator: key.Public()}, id)
	}
}
