package globalnet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// typedPod is a Pod of the API.
type typedPod struct{ *corev1.Pod }

func (p typedPod) Created() int64          { return p.CreationTimestamp.Unix() }
func (p typedPod) IP() netip.Addr          { return PodIP(p.Pod) }
func (p typedPod) LabelSet() labels.Labels { return labels.Set(p.Labels) }

func typed(pods []*corev1.Pod) (out []typedPod) {
	for _, p := range pods {
		out = append(out, typedPod{p})
	}
	return out
}
