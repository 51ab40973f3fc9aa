"""Put the networks of Mask R-CNN together: from pixels to losses, or to detections."""

import tensorflow as tf

import backbone
import heads
import roi_align
import rpn


class MaskRCNN(tf.Module):
    """Four networks and the operations between them. `classes`: their number, without the background."""

    def __init__(self, classes, args):
        super().__init__(name="mask_rcnn")
        self.args = args
        self.backbone = backbone.build(args)
        self.rpn = rpn.build_head(args)
        self.box_head = heads.build_box_head(args, classes)
        self.mask_head = heads.build_mask_head(args, classes)

    @property
    def networks(self):
        return [self.backbone, self.rpn, self.box_head, self.mask_head]

    @property
    def learned(self):
        """Return the variables that training changes."""
        return [variable for network in self.networks for variable in network.trainable_variables]

    @property
    def all_variables(self):
        return [variable for network in self.networks for variable in network.variables]

    def losses(self, batch):
        """Return the five losses by their usual names, scalars. The batch is one of `coco.training_batches`."""
        args = self.args
        levels = self.backbone(tf.cast(batch["pixels"], tf.float32), training=True)
        said = rpn.predict(self.rpn, levels, args)
        rpn_label, rpn_box = rpn.loss(*said, batch, args)
        wanted = heads.targets(rpn.propose(*said, batch["sizes"], args), batch, args)
        regions = roi_align.align_levels(levels, wanted["boxes"], heads.BOX_SIZE, args.anchor_scale)
        label, box = heads.box_loss(*heads.apply(self.box_head, regions), wanted)
        foreground = wanted["boxes"][:, : args.regions_per_image // 4]
        regions = roi_align.align_levels(levels, foreground, heads.MASK_SIZE, args.anchor_scale)
        mask = heads.mask_loss(heads.apply(self.mask_head, regions), wanted, batch["masks"])
        return {
            "rpn_losses/label_loss": rpn_label,
            "rpn_losses/box_loss": rpn_box,
            "fastrcnn_losses/label_loss": label,
            "fastrcnn_losses/box_loss": box,
            "maskrcnn_loss/maskrcnn_loss": mask,
        }

    @tf.function(reduce_retracing=True)
    def detect(self, pixels, sizes):
        """Return what is in images [B, H, W, 3] whose upper left parts of `sizes` [B, 2] are no padding.

        A dict: `boxes` [B, D, 4] in pixels, `classes` [B, D] from 1, `scores` [B, D], `masks` [B, D, 28, 28] within
        their boxes, from 0 to 1, and `count` [B], how many of D places are taken.
        """
        args = self.args
        levels = self.backbone(tf.cast(pixels, tf.float32), training=False)
        proposals = rpn.propose(*rpn.predict(self.rpn, levels, args), sizes, args)
        regions = roi_align.align_levels(levels, proposals, heads.BOX_SIZE, args.anchor_scale)
        said = heads.apply(self.box_head, regions)
        boxes, classes, scores, count = heads.detections(*said, proposals, sizes, args)
        regions = roi_align.align_levels(levels, boxes, heads.MASK_SIZE, args.anchor_scale)
        masks = tf.sigmoid(heads.of_class(heads.apply(self.mask_head, regions), classes))
        return {"boxes": boxes, "classes": classes, "scores": scores, "masks": masks, "count": count}
