package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"subctl/api/crds"
	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/sdewan"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// The namespace and the account of the controller.
const (
	system  = "sdewan-system"
	account = "sdewan-controller"
)

// lifetime is so short that tests see several certificates.
const lifetime = 15 * time.Second

// patience is how long tests wait for what takes well under a second on an idle machine.
const patience = 60 * time.Second

// environment is what the tests of this package share: webhooks, with the rights that this package
// demands, asked by a real API server.
type environment struct {
	server *kubetest.Server
	admin  client.Client
}

var started struct {
	sync.Mutex
	*environment
}

// env returns the environment, which the first test starts.
func env(t testing.TB) *environment {
	t.Helper()
	s := kubetest.Shared(t)
	started.Lock()
	defer started.Unlock()
	if started.environment != nil {
		return started.environment
	}
	e := &environment{server: s, admin: s.Client(t)}
	s.InstallSDEWAN(t)
	e.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	e.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}})
	subjects := subject("ServiceAccount", system, account)
	e.create(t, &rbacv1.ClusterRole{ObjectMeta: described("", account, ""), Rules: ClusterRules()})
	e.create(
		t,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", account, ""),
			RoleRef:    roleRef("ClusterRole", account),
			Subjects:   subjects,
		},
	)
	e.create(t, &rbacv1.Role{ObjectMeta: described(system, account, ""), Rules: NamespaceRules()})
	e.create(
		t,
		&rbacv1.RoleBinding{
			ObjectMeta: described(system, account, ""),
			RoleRef:    roleRef("Role", account),
			Subjects:   subjects,
		},
	)
	for _, role := range crds.SDEWANRoles() {
		e.create(t, role)
	}
	// What RBAC allows is not what these tests are about.
	e.create(t, &rbacv1.ClusterRole{ObjectMeta: described("", "tests", ""), Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{"batch.sdewan.akraino.org", "sdewan.akraino.org", "apps"},
			Resources: []string{"*"},
			Verbs:     []string{"*"},
		},
	}})
	e.create(
		t,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: described("", "tests", ""),
			RoleRef:    roleRef("ClusterRole", "tests"),
			Subjects:   subject("Group", "", "system:authenticated"),
		},
	)

	port := freePort(t)
	o := Options{
		Namespace: system,
		Account:   account,
		Host:      "127.0.0.1",
		Port:      port,
		Hosts:     []string{"127.0.0.1"},
		Lifetime:  lifetime,
	}
	if _, measures := t.(*testing.B); measures {
		o.Lifetime = 0 // the usual one: no renewal is part of what is measured
	}
	configuration := Configuration(o)
	for i := range configuration.Webhooks {
		c := &configuration.Webhooks[i].ClientConfig
		url := fmt.Sprintf("https://127.0.0.1:%d%s", port, *c.Service.Path)
		c.URL = &url
		c.Service = nil
		tenSeconds := int32(10)
		configuration.Webhooks[i].TimeoutSeconds = &tenSeconds // the machine of the tests may be busy
	}
	e.create(t, configuration)
	mgr, err := manager.New(e.token(t, system, account), manager.Options{
		Scheme: kubetest.Scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context()) // until the process ends
	require.NoError(t, AddToManager(ctx, mgr, o))
	go func() {
		if err := mgr.Start(ctx); err != nil {
			panic(err)
		}
	}()
	require.Eventually(t, func() bool {
		err := client.NewDryRunClient(e.admin).Create(t.Context(), rule("default", "probe", "cnf", "", "nowhere"))
		return err != nil && strings.Contains(err.Error(), "there is no Mwan3Policy nowhere")
	}, patience, 50*time.Millisecond, "the webhooks are not asked")
	started.environment = e
	return e
}

func (e *environment) create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, e.admin.Create(t.Context(), o), "%T %s", o, o.GetName())
	}
}

// as returns a client of a user in groups.
func (e *environment) as(t testing.TB, user string, groups ...string) client.Client {
	t.Helper()
	config := e.server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return kubetest.Client(t, config)
}

// token returns the configuration of a service account, with a token of its own.
func (e *environment) token(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	require.NoError(
		t,
		e.admin.SubResource(
			"token").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, request),
	)
	return e.server.As(request.Status.Token)
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// labelled gives a rule its name and labels.
func labelled[R sdewan.Rule](namespace, name, purpose, bucket string, r R) R {
	labels := map[string]string{}
	if purpose != "" {
		labels[sdewan.PurposeLabel] = purpose
	}
	if bucket != "" {
		labels[sdewan.BucketLabel] = bucket
	}
	r.SetNamespace(namespace)
	r.SetName(name)
	r.SetLabels(labels)
	return r
}

func rule(namespace, name, purpose, bucket, policy string) *batch.Mwan3Rule {
	return labelled(namespace, name, purpose, bucket,
		&batch.Mwan3Rule{Spec: batch.Mwan3RuleSpec{Policy: batch.ObjectName(policy)}})
}

func policy(namespace, name, purpose, bucket string) *batch.Mwan3Policy {
	return labelled(namespace, name, purpose, bucket,
		&batch.Mwan3Policy{Spec: batch.Mwan3PolicySpec{Members: []batch.Mwan3PolicyMember{{Network: "wan"}}}})
}

func zone(namespace, name, purpose string) *batch.FirewallZone {
	return labelled(namespace, name, purpose, "",
		&batch.FirewallZone{Spec: batch.FirewallZoneSpec{Network: []batch.NetworkName{"wan"}}})
}

// denied requires that a webhook has denied something, with a text.
func denied(t testing.TB, err error, text string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.Contains(t, err.Error(), "denied the request")
	require.Contains(t, err.Error(), text)
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }
