package join_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/cluster/join"
	"subctl/internal/progress"
)

// A new image replaces running gateways only if their nodes can run it.
func TestImageIsTried(t *testing.T) {
	started := corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 127,
				Reason:   "StartError",
				Message:  "no such file: subctl",
			},
		},
	}}}
	for _, test := range []struct {
		name, image, old string
		status           corev1.PodStatus // that the kubelet reports
		denied           bool
		tried            int
		want             string // in the error; empty: the join goes on
	}{
		{name: "first join", image: "a/b:2"},
		{name: "the same image", image: "a/b:2", old: "a/b:2"},
		{name: "good", image: "a/b:2", old: "a/b:1", status: corev1.PodStatus{Phase: corev1.PodSucceeded}, tried: 1},
		{
			name: "no such image", image: "a/b:2", old: "a/b:1", status: waiting("ErrImagePull", "not found"), tried: 1,
			want: "image a/b:2 cannot replace the image of the running agents: node gw: ErrImagePull: not found: specify another one with --image; nothing was changed",
		},
		{
			name: "another program", image: "a/b:2", old: "a/b:1", status: started, tried: 1,
			want: `node gw: "subctl version" ended with exit code 127 (StartError): no such file: subctl`,
		},
		{name: "no right to try", image: "a/b:2", old: "a/b:1", denied: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := normal()
			s.Image = test.image
			p, err := s.plan()
			require.NoError(t, err)
			gw := clustertest.Node("gw", "10.89.1.1", submarinerv1.GatewayNodeLabel)
			down := clustertest.Node("down", "10.89.1.2", submarinerv1.GatewayNodeLabel)
			down.Status.Conditions = nil
			objs := []client.Object{&gw, &down}
			if test.old != "" {
				for _, obj := range clustertest.Render(t, p.Submariner) {
					switch o := obj.(type) {
					case *corev1.Namespace:
						objs = append(objs, o)
					case *appsv1.DaemonSet:
						o.Spec.Template.Spec.Containers[0].Image = test.old
						objs = append(objs, o)
					}
				}
			}
			tried := 0
			c := interceptor.NewClient(clustertest.Client(t, objs...), interceptor.Funcs{
				Create: func(
					ctx context.Context,
					c client.WithWatch,
					obj client.Object,
					opts ...client.CreateOption,
				) error {
					switch obj := obj.(type) {
					case *authv1.SelfSubjectAccessReview:
						obj.Status.Allowed = !test.denied
						return nil
					case *corev1.Pod:
						if obj.Name == "" { // dry run
							return nil
						}
						tried++
						require.Equal(t, "gw", obj.Spec.NodeName)
						obj.Status = test.status
					}
					return c.Create(ctx, obj, opts...)
				},
			})
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			op := &join.Operation{Member: cluster.Side{Client: c}, Plan: p, Report: progress.New(&out)}
			err = op.Try(ctx)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
			require.Equal(t, test.tried, tried)
			require.Equal(t, test.denied, bytes.Contains(out.Bytes(), []byte("is not tried")))
			left := &corev1.PodList{}
			require.NoError(t, c.List(t.Context(), left))
			require.Empty(t, left.Items, "the trial leaves nothing")
		})
	}
}
