package view

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
)

// ControllerProblem returns why what the statuses of rules and CNFs say may be old: nothing updates
// them. It returns "" if a pod of the controller is ready, or if the user may not know.
func ControllerProblem(ctx context.Context, c client.Reader) (string, error) {
	var d appsv1.Deployment
	err := c.Get(ctx, client.ObjectKey{Namespace: sdewan.Namespace, Name: sdewan.ControllerName}, &d)
	switch {
	case apierrors.IsForbidden(err):
		return "", nil
	case apierrors.IsNotFound(err):
		return fmt.Sprintf(
			"there is no controller (Deployment %s/%s), so what is shown may be old: run \"subctl sdewan install\"",
			sdewan.Namespace, sdewan.ControllerName), nil
	case err != nil:
		return "", fmt.Errorf("reading the Deployment of the controller: %w", err)
	case d.Status.ReadyReplicas == 0:
		return fmt.Sprintf(
			"no pod of the controller is ready, so what is shown may be old: look at the pods in namespace %s",
			sdewan.Namespace), nil
	}
	return "", nil
}
