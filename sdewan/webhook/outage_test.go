package webhook

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kubetest"
)

// While no webhook answers, rules of users and new CNFs are refused, and nothing else: not other
// Deployments, not changes of a CNF that keep its label, and not the controller.
func TestOutage(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "outage")
	cnf := deployment(ns, "cnf", "cnf")
	mine := policy(ns, "mine", "cnf", "basic")
	e.create(t, cnf, mine)
	down := Configuration(Options{Namespace: system, Account: account})
	down.Name = "outage"
	for i := range down.Webhooks {
		c := &down.Webhooks[i].ClientConfig
		url := fmt.Sprintf("https://127.0.0.1:1%s", *c.Service.Path)
		c.URL = &url
		c.Service = nil
	}
	e.create(t, down)
	t.Cleanup(func() { _ = e.admin.Delete(context.WithoutCancel(t.Context()), down) })
	dry := client.NewDryRunClient(e.admin)
	require.Eventually(t, func() bool {
		return dry.Create(t.Context(), policy(ns, "probe", "cnf", "")) != nil
	}, patience, 50*time.Millisecond, "the API server does not ask")

	patch := func(c client.Client, o client.Object, text string) error {
		return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	require.ErrorContains(t, e.admin.Create(t.Context(), policy(ns, "p", "cnf", "basic")), "failed calling webhook")
	require.ErrorContains(t, e.admin.Create(t.Context(), deployment(ns, "second", "cnf-2")), "failed calling webhook")
	plain := deployment(ns, "plain", "")
	require.NoError(t, e.admin.Create(t.Context(), plain))
	require.NoError(t, patch(e.admin, plain, `{"spec":{"replicas":2}}`))
	require.NoError(t, patch(e.admin, cnf, `{"spec":{"replicas":2}}`))
	require.NoError(t, e.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: described(ns, "any", "")}))
	// An administrator repairs what needs no look at other rules; the controller does everything.
	require.NoError(t, patch(e.admin, mine, `{"metadata":{"labels":{"sdewan-bucket-type":"app-intent"}}}`))
	controller := kubetest.Client(t, e.token(t, system, account))
	require.NoError(t, patch(controller, mine, `{"metadata":{"finalizers":["example.com/a"]}}`))
	require.NoError(t, controller.Create(t.Context(), rule(ns, "by-controller", "cnf", "k8s-service", "missing")))
	require.NoError(t, patch(controller, mine, `{"metadata":{"finalizers":null}}`))
	require.NoError(t, e.admin.Delete(t.Context(), plain))
}
