package workload_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster"
	"subctl/cluster/workload"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// installed installs the workloads of a cluster with a global network, on a Linux node that is
// Ready, a Windows node, a virtual node and a node that is not Ready.
func installed(t *testing.T, s *kubetest.Server) client.Client {
	t.Helper()
	c := s.Client(t)
	for name, labels := range map[string]map[string]string{
		"ok":      {corev1.LabelOSStable: "linux", "submariner.io/gateway": "true"},
		"windows": {corev1.LabelOSStable: "windows", "submariner.io/gateway": "true"},
		"virtual": {corev1.LabelOSStable: "linux", "type": "virtual-kubelet"},
		"broken":  {corev1.LabelOSStable: "linux", "submariner.io/gateway": "true"},
	} {
		require.NoError(t, c.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}))
	}
	beat(t, c)
	objs, err := cluster.Everything()
	require.NoError(t, err)
	for _, obj := range objs {
		switch obj.(type) {
		case *corev1.Namespace, *corev1.ResourceQuota, *corev1.ServiceAccount, *rbacv1.Role, *rbacv1.RoleBinding,
			*appsv1.DaemonSet, *appsv1.Deployment:
			require.NoError(t, kube.Apply(t.Context(), c, kube.FieldOwner, obj))
		}
	}
	return c
}

// beat reports that the nodes are Ready, except the broken one, as kubelets do.
func beat(t *testing.T, c client.Client) {
	t.Helper()
	for _, name := range []string{"ok", "windows", "virtual"} {
		was := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n := was.DeepCopy()
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
		}
		require.NoError(t, c.Status().Patch(t.Context(), n, client.StrategicMergeFrom(was)))
	}
}

func faults(t *testing.T, c client.Client) []workload.Fault {
	t.Helper()
	s, err := workload.Read(t.Context(), c, cluster.Namespace, []string{cluster.GatewayName, cluster.RouteAgentName},
		[]string{cluster.GlobalnetName})
	require.NoError(t, err)
	return s.Faults()
}

// asked returns the faults, with what the API server answers now: controllers that have failed
// often report late.
func asked(t *testing.T, c client.Client) []workload.Fault {
	t.Helper()
	s, err := workload.Read(t.Context(), c, cluster.Namespace, []string{cluster.GatewayName, cluster.RouteAgentName},
		[]string{cluster.GlobalnetName})
	require.NoError(t, err)
	return s.Ask(t.Context(), c, s.Faults())
}

// until waits until the faults are as wanted.
func until(
	t *testing.T, c client.Client, what string, read func(*testing.T, client.Client) []workload.Fault,
	ok func([]workload.Fault) bool,
) {
	t.Helper()
	var got []workload.Fault
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if got = read(t, c); ok(got) {
			return
		}
		beat(t, c)
		require.True(t, time.Now().Before(deadline), "%s: %v", what, got)
	}
}

func rejects(name, expression, message string) []client.Object {
	deny := admissionv1.Fail
	meta := metav1.ObjectMeta{Name: name}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &deny,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				kube.AdmissionRule("", []admissionv1.OperationType{admissionv1.Create}, "pods"),
			}},
			Validations: []admissionv1.Validation{{Expression: expression, Message: message}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

// Whatever keeps the API server from creating pods is told in its own words, with the remedy, for
// each workload on each node that can run its pods: not on a Windows node, a virtual node, or a
// node that is not Ready.
func TestRejectedPodsAreExplained(t *testing.T) {
	c := installed(t, kubetest.Start(t))
	in := metav1.ObjectMeta{Name: "theirs", Namespace: cluster.Namespace}
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	for _, test := range []struct {
		name  string
		rules []client.Object
		want  string
		fixes string
	}{
		{
			"LimitRange",
			[]client.Object{&corev1.LimitRange{ObjectMeta: in, Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: memory}},
			}}},
			"maximum memory usage per Container is 256Mi, but limit is", "raise the limits of the LimitRange",
		},
		{
			"LimitRange of CPU, whose maximum is the default limit, too",
			[]client.Object{
				&corev1.LimitRange{ObjectMeta: in, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
					Type: corev1.LimitTypeContainer,
					Max:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")},
				}}}},
			},
			"must be less than or equal to cpu limit of 5m", "raise the limits of the LimitRange",
		},
		{
			"ResourceQuota",
			[]client.Object{&corev1.ResourceQuota{ObjectMeta: in, Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("1Mi")},
			}}},
			"exceeded quota: theirs", "raise the ResourceQuota",
		},
		{
			"a policy", rejects("theirs", "false", "pods are not allowed here"),
			"denied request: pods are not allowed here", "exempt namespace submariner-operator",
		},
	} {
		read := asked
		if test.name == "LimitRange" { // the first: by the Events alone
			read = faults
		}
		for _, rule := range test.rules {
			require.NoError(t, c.Create(t.Context(), rule.DeepCopyObject().(client.Object)), test.name)
		}
		until(t, c, test.name, read, func(got []workload.Fault) bool {
			// Created before the rule was in force.
			require.NoError(t, c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(cluster.Namespace),
				client.GracePeriodSeconds(0)))
			rejected := map[string]bool{}
			for _, f := range got {
				require.Contains(t, []string{"", "ok"}, f.Node, f.String())
				if f.Rejected && f.Lasting && strings.Contains(f.Text, test.want) &&
					strings.Contains(f.Remedy, test.fixes) {
					rejected[f.Workload] = true
				}
			}
			return len(rejected) == 3
		})
		for _, rule := range test.rules {
			require.NoError(t, c.Delete(t.Context(), rule), test.name)
		}
	}
	// Somebody takes the label away with which join lets the namespace have privileged pods.
	enforce := func(level string) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}
		label := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"` + level + `"}}}`
		require.NoError(t, c.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(label))))
	}
	enforce("baseline")
	until(t, c, "PodSecurity", asked, func(got []workload.Fault) bool {
		require.NoError(t, c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(cluster.Namespace),
			client.GracePeriodSeconds(0)))
		return slices.ContainsFunc(got, func(f workload.Fault) bool {
			return f.Workload == "DaemonSet "+cluster.GatewayName && f.Rejected && f.Lasting &&
				strings.Contains(f.Text, `violates PodSecurity "baseline:latest"`) &&
				strings.Contains(f.Remedy,
					"label namespace submariner-operator pod-security.kubernetes.io/enforce=privileged")
		})
	})
	enforce("privileged")
	// Without the Events, and without those of the rule that is in force now, the API server is
	// asked.
	for _, rule := range rejects("theirs", "false", "not at this time") {
		require.NoError(t, c.Create(t.Context(), rule))
	}
	until(t, c, "no Events", faults, func(got []workload.Fault) bool {
		s, err := workload.Read(t.Context(), c, cluster.Namespace, []string{cluster.GatewayName}, nil)
		require.NoError(t, err)
		require.NoError(t, c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(cluster.Namespace),
			client.GracePeriodSeconds(0)))
		s.Events = nil
		s.Pods = nil
		require.Equal(t, "there is no pod yet", s.Faults()[0].Text)
		f := s.Ask(t.Context(), c, s.Faults())[0]
		return f.Rejected && f.Lasting && strings.Contains(f.Text, "denied request: not at this time")
	})
	for _, rule := range rejects("theirs", "false", "") {
		require.NoError(t, c.Delete(t.Context(), rule))
	}
	// A new version of the DaemonSets makes their controller try again; the pods then only lack a
	// scheduler.
	for _, name := range []string{cluster.GatewayName, cluster.RouteAgentName} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace}}
		until(t, c, "no rule", faults, func(got []workload.Fault) bool {
			require.NoError(t, c.Patch(t.Context(), ds, client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"annotations":{"example.com/try":"`+time.Now().String()+`"}}}`))))
			for _, f := range got {
				if f.Workload == "DaemonSet "+name {
					return f.Node == "ok" && f.Pod != "" && f.Usual && f.Text == "not scheduled yet"
				}
			}
			return false
		})
	}
}

// A user who may not read the reason is told so.
func TestHiddenReasons(t *testing.T) {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	s := workload.Snapshot{
		Namespace: "ns", DaemonSets: []appsv1.DaemonSet{ds}, Nodes: []corev1.Node{n}, Hidden: []string{"events"},
	}
	require.Equal(t, "DaemonSet agent on node n1: there is no pod yet; this user may not list events in namespace "+
		"ns, which have the reason", s.Faults()[0].String())
	require.False(t, s.Faults()[0].Usual)
}

// The API server names the pod that it rejects, and a controller takes another name each time: one
// reason is printed once.
func TestRejectionIsPrintedOnce(t *testing.T) {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "u"}}
	for _, message := range []string{
		`pods "agent-%s" is forbidden: maximum memory usage is 100Mi`, `Pod "agent-%s" is invalid: spec`,
	} {
		var follower workload.Follower
		var printed []string
		for _, pod := range strings.Fields("2jfkd 2jfkd cwm5h cwm5h 5dwl6") {
			e := corev1.Event{Reason: "FailedCreate", InvolvedObject: corev1.ObjectReference{UID: "u"}}
			e.Message = "Error creating: " + fmt.Sprintf(message, pod)
			s := workload.Snapshot{
				Namespace: "ns", DaemonSets: []appsv1.DaemonSet{ds}, Nodes: []corev1.Node{n}, Events: []corev1.Event{e},
			}
			for _, f := range follower.Poll(s.Faults()) {
				printed = append(printed, f.Text)
			}
		}
		require.Equal(t, []string{"its pod is not created: " + fmt.Sprintf(message, "…")}, printed)
	}
}

// A failed node keeps the status of its containers: the condition of the pod counts. Nobody waits
// for its pod.
func TestPodsOnFailedNodes(t *testing.T) {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelOSStable: "linux"}},
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	ds := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-x", Namespace: "ns", Labels: map[string]string{"app": "agent"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	s := workload.Snapshot{
		Namespace: "ns", DaemonSets: []appsv1.DaemonSet{ds}, Nodes: []corev1.Node{n}, Pods: []corev1.Pod{p},
	}
	require.Equal(t, "DaemonSet agent: pod agent-x on node n1: running, but not ready: see kubectl logs -n ns agent-x",
		s.Faults()[0].String())
	s.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
	require.Empty(t, s.Faults())
	s.Nodes[0].Status.Conditions[0].Status = corev1.ConditionTrue
	s.Pods[0].Status.Conditions[0].Status = corev1.ConditionTrue
	require.Empty(t, s.Faults())
}

// A reason that all nodes share is one line, and a large cluster does not fill the screen.
func TestLinesAreFew(t *testing.T) {
	var all []workload.Fault
	for _, node := range strings.Fields("a b c d e f g") {
		all = append(all, workload.Fault{Workload: "DaemonSet x", Node: node, Text: "forbidden"})
	}
	for _, pod := range strings.Fields("p1 p2 p3 p4 p5 p6") {
		all = append(all, workload.Fault{
			Workload: "DaemonSet y", Node: "a", Pod: pod, Text: "not ready", Remedy: "see logs",
		})
	}
	require.Equal(t, []string{
		"DaemonSet x on node a, b, c, d, e and 2 more: forbidden",
		"DaemonSet y: pod p1 on node a: not ready: see logs", "DaemonSet y: pod p2 on node a: not ready: see logs",
		"DaemonSet y: pod p3 on node a: not ready: see logs", "DaemonSet y: pod p4 on node a: not ready: see logs",
		"DaemonSet y: pod p5 on node a: not ready: see logs", "DaemonSet y: and 1 more of its pods",
	}, workload.Lines(all))
}

// One of two nodes has failed: the pod of a Deployment that is bound to it is not waited for, as
// another one is available; the only pod is.
func TestDeploymentWithAFailedNode(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	pod := func(name, node string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: node},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	d := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))},
	}
	d.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 1}
	s := workload.Snapshot{
		Deployments: []appsv1.Deployment{d},
		Nodes:       []corev1.Node{node("works", corev1.ConditionTrue), node("failed", corev1.ConditionUnknown)},
		Pods:        []corev1.Pod{pod("a", "works", corev1.ConditionTrue), pod("b", "failed", corev1.ConditionFalse)},
	}
	require.Empty(t, s.Faults())
	s.Nodes[1] = node("failed", corev1.ConditionTrue)
	require.NotEmpty(t, s.Faults(), "a pod on a node that works")
	d.Spec.Replicas = new(int32(1))
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1}
	s.Deployments[0] = d
	s.Nodes[1] = node("failed", corev1.ConditionUnknown)
	s.Pods = s.Pods[1:]
	require.NotEmpty(t, s.Faults(), "the only pod")
}

// No agent of ours is meant to have no pod.
func TestDeploymentWithoutReplicas(t *testing.T) {
	s := workload.Snapshot{Deployments: []appsv1.Deployment{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-operator", Name: "submariner-dns"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(0))},
	}}}
	require.Len(t, s.Faults(), 1)
	require.Equal(t, "Deployment submariner-dns: it is scaled to 0 replicas: "+
		"kubectl -n submariner-operator scale deployment submariner-dns --replicas=1", s.Faults()[0].String())
}
