"""Architectures, by name; `assemble` builds one for the inputs of a data set."""

from training.models.assemble import assemble
from training.models.densenet import DenseNet121, DenseNetBC100x12
from training.models.imagenet_resnet50 import ImageNetResNet50
from training.models.lenet5 import LeNet5, LeNet5Padded
from training.models.lenet5_original import LeNet5Original
from training.models.network import ImageNetwork, Network, TableNetwork, TokenNetwork
from training.models.resnet import ResNet18, ResNet50
from training.models.resnet_cifar import ResNet20, ResNet32, ResNet44, ResNet56, ResNet110
from training.models.table_cnn import TableCNN
from training.models.text_cnn import TextCNN
from training.models.vgg import VGG16BN
from training.models.wide_resnet import WideResNet16x4

MODELS: dict[str, type[Network]] = {
    "lenet5": LeNet5,
    "lenet5_original": LeNet5Original,
    "lenet5_padded": LeNet5Padded,
    "vgg16_bn": VGG16BN,
    "resnet18": ResNet18,
    "resnet50": ResNet50,
    "resnet20": ResNet20,
    "resnet32": ResNet32,
    "resnet44": ResNet44,
    "resnet56": ResNet56,
    "resnet110": ResNet110,
    "densenet121": DenseNet121,
    "densenet_bc_100_12": DenseNetBC100x12,
    "wide_resnet_16_4": WideResNet16x4,
    "text_cnn": TextCNN,
    "table_cnn": TableCNN,
    "imagenet_resnet50": ImageNetResNet50,
}

__all__ = ["MODELS", "ImageNetwork", "Network", "TableNetwork", "TokenNetwork", "assemble"]
