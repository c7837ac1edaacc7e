package clusterdns_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/cluster/clusterdns"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

const mainServer = ".:53 {\n    errors\n    reload\n    forward . /etc/resolv.conf\n}\n"

// coreDNS makes the ConfigMap of CoreDNS and returns an administrator's client.
func coreDNS(t *testing.T, s *kubetest.Server, corefile string) (client.Client, *corev1.ConfigMap) {
	t.Helper()
	c := s.Client(t)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data:       map[string]string{"Corefile": corefile},
	}
	require.NoError(t, c.Create(t.Context(), cm))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = clusterdns.Remove(ctx, c, clusterdns.Settings{})
		_ = c.Delete(ctx, cm)
	})
	return c, cm
}

func corefileOf(t *testing.T, c client.Client, cm *corev1.ConfigMap) string {
	t.Helper()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	return cm.Data["Corefile"]
}

func TestInstallAndRemove(t *testing.T) {
	c, cm := coreDNS(t, kubetest.Shared(t), mainServer)
	settings := clusterdns.Settings{Version: "v1.36.3", Address: ip}
	h, err := clusterdns.Install(t.Context(), c, settings)
	require.NoError(t, err)
	require.Len(t, h.Changes, 1)
	require.Equal(t, mainServer+h.Stanza+"\n", corefileOf(t, c, cm))
	version := cm.ResourceVersion

	h, err = clusterdns.Install(t.Context(), c, settings)
	require.NoError(t, err)
	require.Equal(t, clusterdns.Current, h.State)
	corefileOf(t, c, cm)
	require.Equal(t, version, cm.ResourceVersion, "nothing is written again")

	settings.Address = "10.96.0.54"
	h, err = clusterdns.Install(t.Context(), c, settings)
	require.NoError(t, err)
	require.Equal(t, clusterdns.Outdated, h.State)
	require.Contains(t, corefileOf(t, c, cm), "forward . 10.96.0.54\n")
	require.NotContains(t, cm.Data["Corefile"], ip+"\n")

	role := &rbacv1.Role{}
	key := client.ObjectKey{Namespace: "kube-system", Name: clusterdns.RepairName}
	require.NoError(t, c.Get(t.Context(), key, role))
	_, err = clusterdns.Remove(t.Context(), c, settings)
	require.NoError(t, err)
	require.Equal(t, mainServer, corefileOf(t, c, cm))
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), key, role)), "the right to repair is gone")
}

// Somebody else changes the Corefile between reading and writing: both changes stand.
func TestConflict(t *testing.T) {
	c, cm := coreDNS(t, kubetest.Shared(t), mainServer)
	edited := 0
	racing := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, options ...client.UpdateOption) error {
			if edited++; edited == 1 {
				theirs := cm.DeepCopy()
				theirs.Data["Corefile"] = "# theirs\n" + mainServer
				require.NoError(t, c.Update(ctx, theirs))
			}
			return c.Update(ctx, obj, options...)
		},
	})
	_, err := clusterdns.Install(t.Context(), racing, clusterdns.Settings{Address: ip})
	require.NoError(t, err)
	require.Equal(t, 2, edited)
	text := corefileOf(t, c, cm)
	require.True(t, strings.HasPrefix(text, "# theirs\n"+mainServer+"# submariner-begin"), "%s", text)
}

// Who may not change the Corefile gets the block for somebody who may, and no error.
func TestDenied(t *testing.T) {
	s := kubetest.Shared(t)
	admin, cm := coreDNS(t, s, mainServer)
	as := func(user string) client.Client {
		config := s.Config()
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		return kubetest.Client(t, config)
	}
	h, err := clusterdns.Install(t.Context(), as("nobody"), clusterdns.Settings{Address: ip})
	require.NoError(t, err)
	require.Equal(t, clusterdns.Unknown, h.State)
	require.Equal(t, "this user may not read Deployment kube-system/coredns", h.Reason)
	require.Contains(t, h.Commands, "forward . "+ip)

	role := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "clusterdns-viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	}
	require.NoError(t, admin.Create(t.Context(), role))
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), role) })
	viewer := as("viewer")
	require.Eventually(t, func() bool {
		return viewer.Get(t.Context(), client.ObjectKeyFromObject(cm), cm) == nil
	}, 10*time.Second, 10*time.Millisecond)
	h, err = clusterdns.Install(t.Context(), viewer, clusterdns.Settings{Address: ip})
	require.NoError(t, err)
	require.Equal(t, clusterdns.Missing, h.State)
	require.Empty(t, h.Changes)
	require.Contains(t, h.Reason, `User "viewer" cannot update resource "configmaps"`)
	require.Contains(t, h.Commands, "add this to ConfigMap kube-system/coredns:\n# submariner-begin")
	require.Equal(t, mainServer, corefileOf(t, admin, cm))
}

// The agent repairs the block, and whoever has taken it over can change nothing else.
func TestHostileAgent(t *testing.T) {
	s := kubetest.Shared(t)
	admin, cm := coreDNS(t, s, mainServer)
	h, err := clusterdns.Install(t.Context(), admin, clusterdns.Settings{Address: ip})
	require.NoError(t, err)
	config := s.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:submariner-operator:" + clusterdns.Account,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	agent := kubetest.Client(t, config)
	with := corefileOf(t, admin, cm)
	write := func(change func(*corev1.ConfigMap)) error {
		require.NoError(t, agent.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
		change(cm)
		return agent.Update(t.Context(), cm, client.DryRunAll)
	}
	corefile := func(text string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.Data["Corefile"] = text }
	}
	require.Eventually(t, func() bool {
		err := agent.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)
		return err == nil && apierrors.IsForbidden(write(corefile("")))
	}, 30*time.Second, 50*time.Millisecond, "the right and the policy are in force")
	const root = ".:53 {\n    forward . 192.0.2.66\n}\n"
	begin := strings.SplitAfter(h.Stanza, "\n")[0]
	attacks := map[string]func(*corev1.ConfigMap){
		"no block":         corefile(mainServer),
		"another root":     corefile(root + h.Stanza + "\n"),
		"a block before":   corefile("x {\n}\n" + with),
		"a block after":    corefile(with + "x {\n}\n"),
		"in the block":     corefile(mainServer + strings.ReplaceAll(h.Stanza, "clusterset.local", "x.org") + "\n"),
		"a root in it":     corefile(mainServer + begin + root + strings.TrimPrefix(h.Stanza, begin) + "\n"),
		"no address":       corefile(mainServer + strings.ReplaceAll(h.Stanza, ip, "/etc/passwd") + "\n"),
		"a bad address":    corefile(mainServer + strings.ReplaceAll(h.Stanza, ip, "10.96.0.256") + "\n"),
		"two addresses":    corefile(mainServer + strings.ReplaceAll(h.Stanza, ip, ip+" "+ip) + "\n"),
		"twice":            corefile(with + h.Stanza + "\n"),
		"moved":            corefile(h.Stanza + "\n" + mainServer),
		"in another block": corefile(".:53 {\n" + h.Stanza + "\n    errors\n}\n"),
		"other data":       func(cm *corev1.ConfigMap) { cm.Data["x.server"] = "x" },
		"binary data":      func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"x": {1}} },
		"immutable":        func(cm *corev1.ConfigMap) { yes := true; cm.Immutable = &yes },
		"label":            func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"a": "b"} },
		"annotation":       func(cm *corev1.ConfigMap) { cm.Annotations = map[string]string{"a": "b"} },
		"finalizer":        func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/a"} },
		"owner, to be collected": func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "x", UID: "y"}}
		},
	}
	try := func(t *testing.T) {
		for name, attack := range attacks {
			t.Run(name, func(t *testing.T) {
				err := write(attack)
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				require.ErrorContains(t, err, "the agent of service discovery may change only")
			})
		}
	}
	t.Run("with the block", try)
	require.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), cm.DeepCopy())))
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "extension-apiserver-authentication",
	}}
	require.True(t, apierrors.IsForbidden(agent.Get(t.Context(), client.ObjectKeyFromObject(other), other)))

	repaired, err := clusterdns.Repair(t.Context(), agent, ip)
	require.NoError(t, err)
	require.False(t, repaired)
	repaired, err = clusterdns.Repair(t.Context(), agent, "10.96.0.54")
	require.NoError(t, err)
	require.True(t, repaired)
	require.Equal(t, strings.ReplaceAll(with, ip, "10.96.0.54"), corefileOf(t, admin, cm))

	for _, text := range []string{mainServer, "# theirs\n" + strings.TrimSuffix(mainServer, "\n")} {
		cm.Data["Corefile"] = text
		require.NoError(t, admin.Update(t.Context(), cm))
		repaired, err = clusterdns.Repair(t.Context(), agent, ip)
		require.NoError(t, err)
		require.True(t, repaired, "the block was lost")
		require.Contains(t, corefileOf(t, admin, cm), strings.TrimSuffix(text, "\n")+"\n"+h.Stanza)
	}
	cm.Data["Corefile"] = mainServer
	require.NoError(t, admin.Update(t.Context(), cm))
	delete(attacks, "no block")
	t.Run("without the block", try)
	_, err = clusterdns.Remove(t.Context(), admin, clusterdns.Settings{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := clusterdns.Repair(t.Context(), agent, ip)
		return apierrors.IsForbidden(err)
	}, 10*time.Second, 20*time.Millisecond, "who uninstalls takes the right to repair")
}

// The ConfigMap of k3s is made, and deleted when nothing else is in it.
func TestOwnConfigMap(t *testing.T) {
	c, _ := coreDNS(t, kubetest.Shared(t), mainServer+"import /etc/coredns/custom/*.server\n")
	settings := clusterdns.Settings{Version: "v1.36.3+k3s1", Address: ip}
	custom := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-custom"}}
	_, err := clusterdns.Install(t.Context(), c, settings)
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(custom), custom))
	custom.Data["theirs.server"] = "x {\n}\n"
	require.NoError(t, c.Update(t.Context(), custom))
	_, err = clusterdns.Remove(t.Context(), c, settings)
	require.NoError(t, err)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(custom), custom), "it has a file of somebody else")
	require.Equal(t, map[string]string{"theirs.server": "x {\n}\n"}, custom.Data)

	require.NoError(t, c.Delete(t.Context(), custom))
	_, err = clusterdns.Install(t.Context(), c, settings)
	require.NoError(t, err)
	_, err = clusterdns.Remove(t.Context(), c, settings)
	require.NoError(t, err)
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(custom), custom)))
}
