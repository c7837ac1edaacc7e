package cmd

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

var (
	permissionsRow = regexp.MustCompile("(?m)^\\| `([a-z][^`]*)` \\| (`list submariners.*) \\|$")
	permission     = regexp.MustCompile("`(\\w+) ([^ `]+)( -A| -n [a-z-]+)?`")
)

// userRights is a command of docs/permissions.md, with its permissions.
type userRights struct {
	command string
	rights  []kube.Right
}

func permissionsPage(t *testing.T) []userRights {
	t.Helper()
	page, err := os.ReadFile("../docs/permissions.md")
	require.NoError(t, err)
	var out []userRights
	for _, row := range permissionsRow.FindAllStringSubmatch(string(page), -1) {
		u := userRights{command: row[1]}
		for _, p := range permission.FindAllStringSubmatch(row[2], -1) {
			resource, group, _ := strings.Cut(p[2], ".")
			u.rights = append(u.rights, kube.NewRight(p[1], group, resource, strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(p[3], " -A")), "-n ")))
		}
		out = append(out, u)
	}
	return out
}

// Each command of docs/permissions.md works for a user who has exactly the permissions
// listed there, and is denied without any one of them.
func TestPermissions(t *testing.T) {
	ctrllog.SetLogger(logr.Discard()) // otherwise it prints a warning after 30 s
	server := kubetest.Start(t)
	server.InstallCRDs(t)
	t.Setenv("KUBECONFIG", server.Kubeconfig())
	t.Setenv("HOME", t.TempDir())
	admin := server.Client(t)
	objs, _ := scenario(t, "two-clusters")
	objs = append([]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}}, objs...)
	for _, o := range objs {
		require.NoError(t, admin.Create(t.Context(), o))
	}

	listed := permissionsPage(t)
	var shown []string
	for i, u := range listed {
		shown = append(shown, strings.Join(strings.Fields(u.command)[:2], " "))
		for without := len(u.rights) - 1; without >= -1; without-- { // with all of them last: it may change something
			rights := slices.Clone(u.rights)
			if without >= 0 {
				rights = slices.Delete(rights, without, without+1)
			}
			user := fmt.Sprintf("user-%d-%d", i, without+1)
			permit(t, server, admin, user, rights)
			var stdout, stderr bytes.Buffer
			run(t.Context(), newGlobals(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr}), commandAs(u.command, user))
			if without < 0 {
				require.NotContains(t, stderr.String(), "forbidden", "%s: the page lists too few permissions", u.command)
			} else {
				require.Contains(t, stderr.String(), "forbidden", "%s works without the permission to %s", u.command, u.rights[without])
			}
		}
	}
	for _, s := range tables() {
		require.Contains(t, shown, "show "+s.Noun, "docs/permissions.md lacks a command")
	}
}

// commandAs returns the arguments of a command that a user runs.
func commandAs(command, user string) []string {
	args := append(strings.Fields(command), "--as", user)
	if strings.Contains(command, "--wait") { // nobody is connected here
		args = append(args, "--timeout", "1s")
	}
	return args
}

// permit gives a new user permissions, and waits until the API server knows.
func permit(t *testing.T, server *kubetest.Server, admin client.Client, user string, rights []kube.Right) {
	t.Helper()
	for i, r := range rights {
		name := fmt.Sprintf("%s-%d", user, i)
		rules := []rbacv1.PolicyRule{{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
		meta := metav1.ObjectMeta{Name: name, Namespace: r.Namespace}
		var binding client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		if r.Namespace != "" {
			binding = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		}
		require.NoError(t, admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
		require.NoError(t, admin.Create(t.Context(), binding))
	}
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c := kubetest.Client(t, config)
	require.Eventually(t, func() bool {
		denied, err := kube.Denied(t.Context(), c, rights)
		return err == nil && len(denied) == 0
	}, time.Minute, 20*time.Millisecond)
}
