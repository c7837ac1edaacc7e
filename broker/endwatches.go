package broker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker/exchange"
	"subctl/internal/kube"
)

// endedTitle is the field of a CRD that EndWatches sets. Nothing reads it, and our CRDs do not have
// it: applying them again removes it, which ends the watches once more.
const endedTitle = "/spec/versions/0/schema/openAPIV3Schema/title"

// EndWatches ends all watches of the kinds that clusters exchange. An API server checks the rights
// of a watch only when it begins, and the client chooses how long the watch lasts: without
// EndWatches, a client whose rights were revoked could go on reading. Members that have rights list
// again, and keep what they know meanwhile.
//
// EndWatches changes the CRDs of the kinds, by a random value: every account can read the schemas.
// (It can also read when an API server has prepared a schema to be read, in the header
// Last-Modified of /openapi/v3.) An API server then serves each kind anew. It ends the watches that
// were open after a second, when it has answered the other requests that it had for the kind, and
// after at most two minutes (twice its --request-timeout); see updateCustomResourceDefinition and
// tearDown of k8s.io/apiextensions-apiserver. The caller must have revoked the rights before. The
// broker may lack a kind. The error tells whether c may not change CRDs: see apierrors.IsForbidden.
func EndWatches(ctx context.Context, c client.Client) error {
	patch, err := json.Marshal(
		[]map[string]string{{"op": "add", "path": endedTitle, "value": "watches ended: " + rand.Text()}})
	if err != nil {
		return err
	}
	for _, k := range exchange.Kinds() {
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: k.Resource + "." + k.GroupVersion.Group},
		}
		if err := c.Patch(ctx, crd, client.RawPatch(types.JSONPatchType, patch),
			client.FieldOwner(kube.FieldOwner)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("changing the CRD %s, which ends the watches of its objects: %w", crd.Name, err)
		}
	}
	return nil
}
